"""Faults that only a graph punishes, to be planted in the methods of a backend: its preparation and its forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from fuzz.program import Program
from fuzz.trace import Trace

Method = Callable[..., Any]
Plants = Mapping[str, tuple[str, Callable[[Method], Method]]]


def plants(prepare: str, forward: str, replaced: str, holder: str = "") -> Plants:
    """Name of each fault -> the method it is planted in, named as given, and what makes the planted one of it.

    ``replaced`` is the tensor of the backend, or of the backend's attribute ``holder``, that a graph reads.
    """
    return {
        "nothing": (prepare, lambda honest: honest),
        "tensor replaced": (prepare, _replaced(replaced, holder)),
        "preparation skipped": (prepare, _preparation_skipped),
        "host read": (forward, _host_read),
        "padding in a live slot": (forward, _padding_written_to_a_live_slot),
    }


def run_planted(run: Callable[[Program], Trace], program: Program, backend: type, planted: Plants) -> Trace:
    """``run(program)`` with the fault planted that its seed, modulo their number, says."""
    name, plant = list(planted.values())[program.seed % len(planted)]
    honest = getattr(backend, name)
    setattr(backend, name, plant(honest))
    try:
        return run(program)
    finally:
        setattr(backend, name, honest)


def _replaced(name: str, holder: str) -> Callable[[Method], Method]:
    """Before a replay what the graph reads goes into a new tensor, which the graph does not know."""

    def plant(honest: Method) -> Method:
        @wraps(honest)
        def prepared(self: Any, forward_batch: Any, in_capture: bool = False) -> None:
            if not in_capture:
                owner = getattr(self, holder) if holder else self
                setattr(owner, name, getattr(owner, name).clone())
            honest(self, forward_batch, in_capture)

        return prepared

    return plant


def _preparation_skipped(honest: Method) -> Method:
    @wraps(honest)
    def prepared(self: Any, forward_batch: Any, in_capture: bool = False) -> None:
        if in_capture:
            honest(self, forward_batch, in_capture)

    return prepared


def _host_read(honest: Method) -> Method:
    @wraps(honest)
    def forward(self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, *rest: Any, **named: Any) -> Any:
        forward_batch.seq_lens.max().item()
        return honest(self, q, k, v, layer, forward_batch, *rest, **named)

    return forward


def _padding_written_to_a_live_slot(honest: Method) -> Method:
    """The last row's K and V go where the first one's do."""

    @wraps(honest)
    def forward(self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, *rest: Any, **named: Any) -> Any:
        forward_batch.out_cache_loc[-1].copy_(forward_batch.out_cache_loc[0])
        return honest(self, q, k, v, layer, forward_batch, *rest, **named)

    return forward
