"""Slots of the window pool: each slot of a request has a peer there, until its token has left every window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stubs import sglang_window
from stubs.kv_memory import kv_memory
from stubs.live import LiveRequest
from stubs.world import World


class WindowSlots:
    """Takes peers from and gives them back to SGLang's own SWATokenToKVPoolAllocator, whose mapping kernels read."""

    def __init__(self, world: World, allocator: Any, pool: Any) -> None:
        self.world = world
        self.allocator = allocator
        self.pool = pool
        self.margin = sglang_window.eviction_margin(world)

    @property
    def pages(self) -> torch.Tensor:
        pages: torch.Tensor = self.allocator.swa_attn_allocator.free_pages
        return pages

    def lay_out(self, pages: torch.Tensor) -> None:
        """Hand out ``pages`` from the other end: few slots then have the number of their peer."""
        self.allocator.swa_attn_allocator.free_pages = pages.flip(0).contiguous()

    def take(self, live: LiveRequest, count: int) -> None:
        """Peers for the last ``count`` slots that ``live`` was given, whole pages."""
        taken = self.allocator.swa_attn_allocator.alloc(count)
        assert taken is not None, "the ledger keeps programs within the smaller pool"
        live.window_slots = live.window_slots + taken.tolist()

    def map(self, live: LiveRequest, start: int, end: int) -> None:
        """Tell SGLang the peers of tokens ``start`` up to ``end``, as its allocator does for each token it hands out."""
        mapping = self.allocator.full_to_swa_index_mapping
        mapping[live.slots[start:end]] = torch.tensor(live.window_slots[start:end], dtype=mapping.dtype).to(
            mapping.device
        )

    def evict(self, live: LiveRequest) -> None:
        """Give up what no later token of ``live`` can see. Source: SGLang's ``maybe_evict_swa``.

        The prefix cache keeps what it knows. Not before the second decode: the extend may still run under overlap.
        """
        page, window = self.world.page_size, self.world.local_span
        kept = window if not self.world.radix_cache else -(-max(window, page) // page) * page
        end = (live.length - kept - self.margin) // page * page
        start = max(live.evicted, live.protected)
        if not live.decoded or end <= start:
            return
        self._free(live.slots[start:end], live.window_slots[start:end])
        live.window_slots = live.window_slots[:start] + [0] * (end - start) + live.window_slots[end:]
        live.evicted = end

    def release(self, live: LiveRequest, free: Sequence[int], keep: int) -> None:
        """Give back the peers of those slots behind the first ``keep`` that are in ``free``."""
        leaving = set(free)
        pairs = [pair for pair in zip(live.slots[keep:], live.window_slots[keep:], strict=True) if pair[0] in leaving]
        self._free([slot for slot, _ in pairs], [peer for _, peer in pairs])
        live.window_slots = live.window_slots[:keep]

    def _free(self, slots: Sequence[int], peers: Sequence[int]) -> None:
        mapping = self.allocator.full_to_swa_index_mapping
        index = torch.tensor(slots, dtype=torch.int64, device=mapping.device)
        mapped = index[mapping[index] > 0]
        if len(mapped):
            self.allocator.free_swa(mapped)
        rows = torch.tensor([peer for peer in peers if peer], dtype=torch.int64, device=mapping.device)
        for buffer in kv_memory(self.pool):
            if buffer.mapping is not None:
                buffer.poison(rows)
