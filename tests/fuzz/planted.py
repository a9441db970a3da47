"""Faults of each oracle's kind, planted in SGLang's backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STRAY = 400  # a slot that no request of a small program is given


def _decode(change: Callable[..., Any]) -> Callable[[Any], Any]:
    """A maker of ``forward_decode``: ``change`` is handed the honest answer, the backend and the batch."""

    def wrap(honest: Callable[..., Any]) -> Callable[..., Any]:
        def forward_decode(self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, **named: Any) -> Any:
            pool = self.token_to_kv_pool
            return change(lambda: honest(self, q, k, v, layer, forward_batch, **named), self, pool, forward_batch)

        return forward_decode

    return wrap


def _write_astray(answer: Callable[[], Any], backend: Any, pool: Any, batch: Any) -> Any:
    pool.k_buffer[0][STRAY] = 5.0
    return answer()


def _write_nothing(answer: Callable[[], Any], backend: Any, pool: Any, batch: Any) -> Any:
    before = pool.v_buffer[0].clone()
    out = answer()
    pool.v_buffer[0].copy_(before)
    return out


def _move_positions(answer: Callable[[], Any], backend: Any, pool: Any, batch: Any) -> Any:
    batch.positions += 1
    return answer()


def _remember(answer: Callable[[], Any], backend: Any, pool: Any, batch: Any) -> Any:
    """From its second step on a wrapper answers with other last bits, within every tolerance."""
    backend.steps_run = getattr(backend, "steps_run", 0) + 1
    return answer() * (1 + 1e-6 * (backend.steps_run > 1))


def _nan(answer: Callable[[], Any], backend: Any, pool: Any, batch: Any) -> Any:
    return answer() * float("nan")


def _point_astray(honest: Callable[..., None]) -> Callable[..., None]:
    def init_forward_metadata(self: Any, forward_batch: Any) -> None:
        honest(self, forward_batch)
        if forward_batch.forward_mode.is_decode():
            self.forward_metadata.kv_indices[0] = STRAY

    return init_forward_metadata


def _refuse_a_keyword(honest: Callable[..., None]) -> Callable[..., Any]:
    def forward_decode(self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any) -> Any:
        raise AssertionError("the call does not get here")

    forward_decode.__qualname__ = honest.__qualname__
    return forward_decode


_NATIVE = "torch_native_backend.TorchNativeAttnBackend"
# What is planted -> (class, its method, what that becomes).
PLANTS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "stray write": (_NATIVE, "forward_decode", _decode(_write_astray)),
    "no write": (_NATIVE, "forward_decode", _decode(_write_nothing)),
    "changed input": (_NATIVE, "forward_decode", _decode(_move_positions)),
    "history": (_NATIVE, "forward_decode", _decode(_remember)),
    "nan": (_NATIVE, "forward_decode", _decode(_nan)),
    "narrow signature": (_NATIVE, "forward_decode", _refuse_a_keyword),
    "foreign slot": ("triton_backend.TritonAttnBackend", "init_forward_metadata", _point_astray),
}
