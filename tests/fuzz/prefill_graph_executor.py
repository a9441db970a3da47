"""Runs programs as ``fuzz.execute`` does, on a SGLang whose fa3 errs in ways that only a graph of a prefill punishes.

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
    backend = sglang.load(f"{sglang.ATTENTION}.flashattention_backend").FlashAttentionBackend
    name, plant = list(PLANTS.values())[program.seed % len(PLANTS)]
    honest = getattr(backend, name)
    setattr(backend, name, plant(honest))
    try:
        return plain.execute(program)
    finally:
        setattr(backend, name, honest)


def _table_replaced(honest: Callable[..., None]) -> Callable[..., None]:
    """Before a replay the table of pages becomes a new tensor, which the graph does not know."""

    def _init_full_cg_prefill_metadata(self: Any, forward_batch: Any, in_capture: bool) -> None:
        if not in_capture:
            metadata = self.full_cg_prefill_metadata
            metadata.page_table = metadata.page_table.clone()
        honest(self, forward_batch, in_capture)

    return _init_full_cg_prefill_metadata


def _preparation_skipped(honest: Callable[..., None]) -> Callable[..., None]:
    def _init_full_cg_prefill_metadata(self: Any, forward_batch: Any, in_capture: bool) -> None:
        if in_capture:
            honest(self, forward_batch, in_capture)

    return _init_full_cg_prefill_metadata


def _host_read(honest: Callable[..., Any]) -> Callable[..., Any]:
    def forward_extend(
        self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, *rest: Any, **named: Any
    ) -> Any:
        forward_batch.seq_lens.max().item()
        return honest(self, q, k, v, layer, forward_batch, *rest, **named)

    return forward_extend


def _padding_written_to_a_live_slot(honest: Callable[..., Any]) -> Callable[..., Any]:
    """The last row's K and V go where the first one's do."""

    def forward_extend(
        self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, *rest: Any, **named: Any
    ) -> Any:
        forward_batch.out_cache_loc[-1].copy_(forward_batch.out_cache_loc[0])
        return honest(self, q, k, v, layer, forward_batch, *rest, **named)

    return forward_extend


_PLAN = "_init_full_cg_prefill_metadata"
PLANTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "nothing": (_PLAN, lambda honest: honest),
    "table replaced": (_PLAN, _table_replaced),
    "preparation skipped": (_PLAN, _preparation_skipped),
    "host read": ("forward_extend", _host_read),
    "padding in a live slot": ("forward_extend", _padding_written_to_a_live_slot),
}
