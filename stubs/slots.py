"""KV slots of live requests, taken from and given back to SGLang's real allocator and request rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from stubs import sglang_batch, sglang_memory
from stubs.kv_memory import POISON, kv_memory
from stubs.live import LiveRequest
from stubs.window_slots import WindowSlots
from stubs.world import World

__all__ = ["POISON", "SlotKeeper", "kv_buffers"]


class SlotKeeper:
    """Owns who holds which page. Pages shared by a cache hit are given back when their last holder lets go."""

    def __init__(self, world: World, runners: list[Any], seed: int) -> None:
        self.world = world
        self.runners = runners
        self.rows = runners[0].req_to_token_pool
        self.allocator = runners[0].token_to_kv_pool_allocator
        self.holders: Counter[int] = Counter()  # page -> live requests that hold it
        self.window: WindowSlots | None = None
        if world.window_tokens:
            self.window = WindowSlots(world, self.allocator, runners[0].token_to_kv_pool)
            self.allocator = self.allocator.full_attn_allocator
            self.window.lay_out(self._order(self.window.pages, seed))
        self.allocator.free_pages = self._order(self.allocator.free_pages, seed)
        for runner in runners:
            for buffer in kv_memory(runner.token_to_kv_pool):
                buffer.poison(slice(None))

    def _order(self, pages: torch.Tensor, seed: int) -> torch.Tensor:
        """An allocator's free pages in the order that the world's layout asks for."""
        count = len(pages)
        if self.world.layout == "shuffled":
            order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        elif self.world.layout == "descending":
            order = torch.arange(count - 1, -1, -1)
        elif self.world.layout == "interleaved":
            half = (count + 1) // 2  # 0, half, 1, half + 1, ...: neighbours in a row lie far apart in the pool
            order = torch.stack([torch.arange(half), torch.arange(half) + half]).T.flatten()
            order = order[order < count]
        else:
            order = torch.arange(count)
        return pages[order.to(pages.device)].contiguous()

    def admit(self, request_id: int, prompt: list[int], vocab_size: int) -> LiveRequest:
        """A request with a row of its own and no slots."""
        record = sglang_batch.request(request_id, prompt, vocab_size)
        row = sglang_memory.take_row(self.rows, record)
        assert row is not None, "the ledger keeps running requests within the rows there are"
        return LiveRequest(request_id, record, row, [])

    def share(self, live: LiveRequest, source: LiveRequest, tokens: int) -> None:
        """A prefix cache hit: ``live`` begins with ``source``'s first ``tokens`` slots (whole pages)."""
        assert not live.slots and tokens % self.world.page_size == 0 and tokens <= source.length
        live.slots = source.slots[:tokens]
        live.window_slots = source.window_slots[:tokens]
        live.length = live.shared = tokens
        live.target = [history.first(tokens) for history in source.target]
        live.draft = [history.first(tokens) for history in source.draft]
        self.holders.update(self._pages(live.slots))
        self._write_row(live, tokens)

    def reserve(self, live: LiveRequest, tokens: int, *, whole_pages: bool = False) -> None:
        """Make the request hold slots for ``tokens``, page by page, and its row say which.

        As in SGLang the row is written up to the last token, and behind it keeps what the row held before; only a
        speculative step's reserve (``whole_pages``) is written to the end of its last page.
        """
        page = self.world.page_size
        rounded = -(-tokens // page) * page
        missing = rounded - len(live.slots)
        if missing > 0:
            taken = self.allocator.alloc(missing)
            assert taken is not None, "the ledger keeps programs within the pool"
            start = len(live.slots)
            live.slots = live.slots + taken.tolist()
            self.holders.update(self._pages(live.slots[start:]))
            if self.window is not None:
                self.window.take(live, missing)
        self._write_row(live, rounded if whole_pages else tokens)

    def release(self, live: LiveRequest, *, keep: int = 0) -> None:
        """Give back the row, and the slots behind the first ``keep``, poisoning those that nobody else holds."""
        leaving = live.slots[keep:]
        self.holders.subtract(self._pages(leaving))
        page = self.world.page_size
        free = [slot for slot in leaving if self.holders[slot // page] <= 0]
        if self.window is not None:
            self.window.release(live, free, keep)
        if free:
            index = torch.tensor(free, dtype=torch.int64, device=self.world.device)
            self.allocator.free(index)
            for runner in self.runners:
                for held in kv_memory(runner.token_to_kv_pool):
                    if held.mapping is None:
                        held.poison(index)
        live.slots, live.written = live.slots[:keep], min(live.written, keep)
        sglang_memory.free_row(self.rows, live.record)

    def evict(self, live: LiveRequest) -> None:
        """Before a step that generates: give up what has left the window of ``live`` in a pool of window layers."""
        if self.window is not None:
            self.window.evict(live)
        live.decoded += 1

    def _pages(self, slots: list[int]) -> set[int]:
        return {slot // self.world.page_size for slot in slots}

    def _write_row(self, live: LiveRequest, end: int) -> None:
        values = torch.tensor(live.slots[live.written : end], dtype=torch.int32, device=self.world.device)
        self.rows.req_to_token[live.row, live.written : live.written + len(values)] = values
        if self.window is not None:
            self.window.map(live, live.written, end)
        live.written = max(live.written, end)


def kv_buffers(pool: Any) -> list[torch.Tensor]:
    """Every K and V buffer of a pool, [slots, num_kv_heads, head_dim] each, K of all layers first."""
    return [buffer.tensor for buffer in kv_memory(pool)]
