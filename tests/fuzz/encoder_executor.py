"""Runs programs as ``fuzz.execute`` does, on a SGLang whose torch_native backend has a fault over encoders.

The program's seed says which of FAULTS; 0 is none.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

from fuzz import execute as plain
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import sglang

prepare, available_pairs, speculative_modes = plain.prepare, plain.available_pairs, plain.speculative_modes


def _own_tokens_begin_early(layer: Any, batch: Any) -> None:
    if not layer.is_cross_attention:
        batch.encoder_lens = (batch.encoder_lens - 1).clamp(min=0)


def _encoder_ends_early(layer: Any, batch: Any) -> None:
    if layer.is_cross_attention:
        batch.encoder_lens = (batch.encoder_lens - 1).clamp(min=0)


def _encoder_is_stored_in_another_order(layer: Any, batch: Any) -> None:
    batch.encoder_out_cache_loc = batch.encoder_out_cache_loc.flip(0)


FAULTS: dict[str, Callable[[Any, Any], None]] = {
    "none": lambda layer, batch: None,
    "own tokens begin early": _own_tokens_begin_early,
    "encoder ends early": _encoder_ends_early,
    "encoder is stored in another order": _encoder_is_stored_in_another_order,
}


def execute(program: Program) -> Trace:
    change = list(FAULTS.values())[program.seed]
    backend = sglang.load(f"{sglang.ATTENTION}.torch_native_backend").TorchNativeAttnBackend
    honest = {name: getattr(backend, name) for name in ("forward_extend", "forward_decode")}

    def misled(name: str) -> Callable[..., Any]:
        def forward(self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, *rest: Any, **named: Any) -> Any:
            batch = copy(forward_batch)
            change(layer, batch)
            return honest[name](self, q, k, v, layer, batch, *rest, **named)

        return forward

    for name in honest:
        setattr(backend, name, misled(name))
    try:
        return plain.execute(program)
    finally:
        for name, method in honest.items():
            setattr(backend, name, method)
