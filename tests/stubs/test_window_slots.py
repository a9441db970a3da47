"""Slots of the window pool: who has which peer, what the mapping says, what leaves the window and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stubs import sglang_window
from stubs.slots import POISON, SlotKeeper
from stubs.world import World
from tests.stubs.toy_memory import ToyAllocator, ToyRows, toy_runner, without_sglang


class ToyWindowAllocator:
    """SWATokenToKVPoolAllocator: two allocators, and which slot of the one has which of the other."""

    def __init__(self, full: World, window: World) -> None:
        self.full_attn_allocator, self.swa_attn_allocator = ToyAllocator(full), ToyAllocator(window)
        self.full_to_swa_index_mapping = torch.zeros(full.max_total_tokens + full.page_size + 1, dtype=torch.int64)

    def free_swa(self, slots: torch.Tensor) -> None:
        self.swa_attn_allocator.free(self.full_to_swa_index_mapping[slots])
        self.full_to_swa_index_mapping[slots] = 0


def keeper(monkeypatch: pytest.MonkeyPatch, **world: Any) -> SlotKeeper:
    """Two layers, the second with a window of 2 in a pool of 6 slots; the full pool has 8."""
    without_sglang(monkeypatch)
    monkeypatch.setattr(sglang_window, "eviction_margin", lambda world: 0)
    fields: dict[str, Any] = {"num_layers": 2, "sliding_window": 2, "alternate_layers": 1, "window_tokens": 6}
    fields |= {"max_total_tokens": 8, "context_len": 16, "head_dim": 8, "radix_cache": 0}
    made = World(**{**fields, **world})
    made.check()
    plain = World(max_total_tokens=8, page_size=made.page_size)
    small = World(max_total_tokens=6, page_size=made.page_size)
    allocator = ToyWindowAllocator(plain, small)
    runner = toy_runner(made, ToyRows(made), ToyAllocator(plain))
    runner.token_to_kv_pool_allocator = allocator
    shapes = [(size + made.page_size, 1, 8) for size in (8, 6)]
    halves = [SimpleNamespace(k_buffer=[torch.zeros(shape)], v_buffer=[torch.zeros(shape)]) for shape in shapes]
    runner.token_to_kv_pool = SimpleNamespace(
        full_kv_pool=halves[0],
        swa_kv_pool=halves[1],
        layers_mapping={0: (0, False), 1: (0, True)},
        full_to_swa_index_mapping=allocator.full_to_swa_index_mapping,
    )
    return SlotKeeper(made, [runner], 0)


def mapping(keeper: SlotKeeper) -> list[int]:
    assert keeper.window is not None
    pairs: list[int] = keeper.window.allocator.full_to_swa_index_mapping.tolist()
    return pairs


def window_rows(keeper: SlotKeeper) -> list[float]:
    rows: list[float] = keeper.runners[0].token_to_kv_pool.swa_kv_pool.k_buffer[0][:, 0, 0].tolist()
    return rows


def test_every_slot_has_a_peer_from_the_other_end(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = keeper(monkeypatch)
    live = slots.admit(0, [], 8)
    slots.reserve(live, 3)
    assert (live.slots, live.window_slots) == ([1, 2, 3], [6, 5, 4])
    assert mapping(slots)[:5] == [0, 6, 5, 4, 0]


def test_what_has_left_the_window_is_given_up_and_poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = keeper(monkeypatch)
    live = slots.admit(0, [], 8)
    slots.reserve(live, 5)
    live.length = 5
    slots.runners[0].token_to_kv_pool.swa_kv_pool.k_buffer[0].fill_(1.0)
    slots.evict(live)
    assert live.evicted == 0, "the extend may still run"
    slots.evict(live)
    assert (live.evicted, live.window_slots) == (3, [0, 0, 0, 3, 2])
    assert mapping(slots)[:6] == [0, 0, 0, 0, 3, 2]
    assert window_rows(slots) == [1, 1, 1, 1, POISON, POISON, POISON]


def test_the_prefix_cache_keeps_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = keeper(monkeypatch, radix_cache=1)
    live = slots.admit(0, [], 8)
    slots.reserve(live, 5)
    live.length, live.protected, live.decoded = 5, 2, 1
    slots.evict(live)
    assert (live.evicted, live.window_slots) == (3, [6, 5, 0, 3, 2])


def test_a_finished_request_gives_back_the_peers_it_still_has(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = keeper(monkeypatch)
    live = slots.admit(0, [], 8)
    slots.reserve(live, 5)
    live.length, live.decoded = 5, 1
    slots.evict(live)
    slots.release(live)
    assert slots.window is not None
    assert sorted(slots.window.pages.tolist()) == [1, 2, 3, 4, 5, 6]
    assert mapping(slots) == [0] * 10


def test_whole_pages_leave_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = keeper(monkeypatch, page_size=2)
    live = slots.admit(0, [], 8)
    slots.reserve(live, 5)
    live.length, live.decoded = 5, 1
    slots.evict(live)
    assert (live.evicted, live.window_slots) == (2, [0, 0, 4, 5, 2, 3])
