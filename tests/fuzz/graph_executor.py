"""Runs programs as ``fuzz.execute`` does, on a SGLang whose triton backend errs in ways that only a graph punishes.

The program's seed, modulo the number of plants, says how; 0 is not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

from fuzz import execute as plain
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import sglang

prepare, available_pairs, speculative_modes = plain.prepare, plain.available_pairs, plain.speculative_modes


def execute(program: Program) -> Trace:
    backend = sglang.load(f"{sglang.ATTENTION}.triton_backend").TritonAttnBackend
    name, plant = list(PLANTS.values())[program.seed % len(PLANTS)]
    honest = getattr(backend, name)
    setattr(backend, name, plant(honest))
    try:
        return plain.execute(program)
    finally:
        setattr(backend, name, honest)


def _buffer_replaced(honest: Callable[..., None]) -> Callable[..., None]:
    """Before a replay the indices go into a new tensor, which the graph does not know."""

    def init_forward_metadata_out_graph(self: Any, forward_batch: Any, in_capture: bool = False) -> None:
        if not in_capture:
            self.cuda_graph_kv_indices = self.cuda_graph_kv_indices.clone()
        honest(self, forward_batch, in_capture)

    return init_forward_metadata_out_graph


def _preparation_skipped(honest: Callable[..., None]) -> Callable[..., None]:
    def init_forward_metadata_out_graph(self: Any, forward_batch: Any, in_capture: bool = False) -> None:
        if in_capture:
            honest(self, forward_batch, in_capture)

    return init_forward_metadata_out_graph


def _host_read(honest: Callable[..., Any]) -> Callable[..., Any]:
    def forward_decode(
        self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, *rest: Any, **named: Any
    ) -> Any:
        forward_batch.seq_lens.max().item()
        return honest(self, q, k, v, layer, forward_batch, *rest, **named)

    return forward_decode


def _padding_written_to_a_live_slot(honest: Callable[..., Any]) -> Callable[..., Any]:
    """The last row's K and V go where the first one's do."""

    def forward_decode(
        self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, *rest: Any, **named: Any
    ) -> Any:
        forward_batch.out_cache_loc[-1].copy_(forward_batch.out_cache_loc[0])
        return honest(self, q, k, v, layer, forward_batch, *rest, **named)

    return forward_decode


_PLAN = "init_forward_metadata_out_graph"
PLANTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "nothing": (_PLAN, lambda honest: honest),
    "buffer replaced": (_PLAN, _buffer_replaced),
    "preparation skipped": (_PLAN, _preparation_skipped),
    "host read": ("forward_decode", _host_read),
    "padding in a live slot": ("forward_decode", _padding_written_to_a_live_slot),
}
