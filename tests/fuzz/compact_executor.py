"""Runs programs as ``fuzz.execute`` does, on a SGLang whose fa3 errs in compact verifies.

The program's seed, modulo the number of plants, says how; 0 is not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

from fuzz import execute as plain
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import sglang

prepare, available_pairs, speculative_modes = plain.prepare, plain.available_pairs, plain.speculative_modes


def execute(program: Program) -> Trace:
    module = sglang.load(f"{sglang.ATTENTION}.flashattention_backend")
    place, name, plant = list(PLANTS.values())[program.seed % len(PLANTS)]
    owner = module if place is None else getattr(module, place)
    honest = getattr(owner, name)
    setattr(owner, name, plant(honest))
    try:
        return plain.execute(program)
    finally:
        setattr(owner, name, honest)


def _whole_windows(honest: Callable[..., Any]) -> Callable[..., Any]:
    """The lengths of K are those of whole windows, of which the rest is not there yet."""

    def geometry(*, seq_lens: torch.Tensor, layout: Any) -> Any:
        made = honest(seq_lens=seq_lens, layout=layout)
        made.cache_seqlens_int32 = (seq_lens + 4).to(torch.int32)
        return made

    return geometry


def _of_others(honest: Callable[..., Any]) -> Callable[..., Any]:
    """Each request's rows of q are as many as its neighbour has."""

    def geometry(*, seq_lens: torch.Tensor, layout: Any) -> Any:
        made = honest(seq_lens=seq_lens, layout=layout)
        made.cu_seqlens_q[1:] = layout.verify_lens.flip(0).cumsum(0)
        return made

    return geometry


def _starts_kept(honest: Callable[..., None]) -> Callable[..., None]:
    """A replay finds the starts of rows as the replay before left them."""

    def init_forward_metadata_out_graph(self: Any, forward_batch: Any, in_capture: bool = False) -> None:
        size = forward_batch.batch_size
        before = None if in_capture else self.target_verify_metadata[size].cu_seqlens_q.clone()
        honest(self, forward_batch, in_capture)
        if before is not None:
            self.target_verify_metadata[size].cu_seqlens_q.copy_(before)

    return init_forward_metadata_out_graph


def _replaced(honest: Callable[..., None]) -> Callable[..., None]:
    """Before a replay the lengths of K become a new tensor, which the graph does not know."""

    def init_forward_metadata_out_graph(self: Any, forward_batch: Any, in_capture: bool = False) -> None:
        if not in_capture:
            metadata = self.target_verify_metadata[forward_batch.batch_size]
            metadata.cache_seqlens_int32 = metadata.cache_seqlens_int32.clone()
        honest(self, forward_batch, in_capture)

    return init_forward_metadata_out_graph


_GEOMETRY = "build_ragged_target_verify_geometry"
_PLAN = ("FlashAttentionBackend", "init_forward_metadata_out_graph")
# What is planted -> (class, None for the module; its function; what that becomes).
PLANTS: dict[str, tuple[str | None, str, Callable[[Any], Any]]] = {
    "nothing": (None, _GEOMETRY, lambda honest: honest),
    "lengths of whole windows": (None, _GEOMETRY, _whole_windows),
    "lengths of others": (None, _GEOMETRY, _of_others),
    "starts not refreshed": (*_PLAN, _starts_kept),
    "metadata replaced": (*_PLAN, _replaced),
}
