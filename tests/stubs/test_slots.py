"""Who holds which KV slots: the order they are handed out in, sharing, giving back, and what the rows say."""

from __future__ import annotations

from typing import Any

import pytest

from stubs.slots import POISON, SlotKeeper, kv_buffers
from stubs.world import World
from tests.stubs.toy_memory import toy_server, without_sglang


@pytest.fixture(autouse=True)
def _no_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    without_sglang(monkeypatch)


def keeper(seed: int = 0, **world: Any) -> SlotKeeper:
    fields: dict[str, Any] = {"max_total_tokens": 8, "context_len": 16, "max_running_requests": 2, "head_dim": 8}
    made = World(**{**fields, **world})
    server = toy_server(made)
    return SlotKeeper(made, [server.target, *([server.draft] if server.draft else [])], seed)


def row(keeper: SlotKeeper, live: Any, columns: int) -> list[int]:
    held: list[int] = keeper.rows.req_to_token[live.row, :columns].tolist()
    return held


# --- layouts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "page", "pages"),
    [
        ("contiguous", 1, [1, 2, 3, 4, 5, 6, 7, 8]),
        ("descending", 1, [8, 7, 6, 5, 4, 3, 2, 1]),
        ("interleaved", 1, [1, 5, 2, 6, 3, 7, 4, 8]),
        ("interleaved", 4, [1, 2]),
    ],
)
def test_layout_orders_the_free_pages(layout: str, page: int, pages: list[int]) -> None:
    assert keeper(layout=layout, page_size=page).allocator.free_pages.tolist() == pages


def test_interleaving_an_odd_number_of_pages_loses_none() -> None:
    assert keeper(layout="interleaved", max_total_tokens=9).allocator.free_pages.tolist() == [1, 6, 2, 7, 3, 8, 4, 9, 5]


def test_shuffled_layout_is_the_seeds_own() -> None:
    one, again, other = (keeper(seed, layout="shuffled").allocator.free_pages.tolist() for seed in (3, 3, 4))
    assert one == again
    assert one != other
    assert sorted(one) == [1, 2, 3, 4, 5, 6, 7, 8] != one


def test_slots_are_handed_out_page_by_page_in_that_order() -> None:
    slots = keeper(layout="descending", page_size=4, max_total_tokens=12)
    live = slots.admit(0, [], 8)
    slots.reserve(live, 5)
    assert live.slots == [12, 13, 14, 15, 8, 9, 10, 11]


# --- rows --------------------------------------------------------------------------------------------------------


def test_row_is_written_as_far_as_the_tokens_and_no_further() -> None:
    slots = keeper(page_size=4)
    live = slots.admit(0, [], 8)
    slots.rows.req_to_token[live.row] = 77  # what an earlier request left there
    slots.reserve(live, 5)
    assert row(slots, live, 9) == [4, 5, 6, 7, 8, 77, 77, 77, 77]


def test_speculative_reserve_writes_whole_pages() -> None:
    slots = keeper(page_size=4)
    live = slots.admit(0, [], 8)
    slots.reserve(live, 5, whole_pages=True)
    assert row(slots, live, 9) == [4, 5, 6, 7, 8, 9, 10, 11, 0]


def test_reserving_fewer_tokens_takes_and_writes_nothing() -> None:
    slots = keeper()
    live = slots.admit(0, [], 8)
    slots.reserve(live, 3)
    slots.reserve(live, 2)
    assert (live.slots, live.written) == ([1, 2, 3], 3)


def test_more_tokens_than_the_pool_has_are_our_own_fault() -> None:
    slots = keeper()
    slots.allocator.alloc = lambda tokens: None
    with pytest.raises(AssertionError, match="within the pool"):
        slots.reserve(slots.admit(0, [], 8), 1)


# --- giving back -------------------------------------------------------------------------------------------------


def test_pool_is_poison_from_the_start() -> None:
    for buffer in kv_buffers(keeper(num_layers=2).runners[0].token_to_kv_pool):
        assert buffer.unique().tolist() == [POISON]


def test_released_slots_and_row_go_back_and_are_poisoned_in_every_runner() -> None:
    speculative = {"spec_algorithm": "EAGLE", "spec_steps": 1, "spec_topk": 1, "spec_draft_tokens": 2}
    slots = keeper(**speculative)
    first, second = (slots.admit(number, [], 8) for number in (0, 1))
    for live in (first, second):
        slots.reserve(live, 3)
    buffers = [buffer for runner in slots.runners for buffer in kv_buffers(runner.token_to_kv_pool)]
    for buffer in buffers:
        buffer.fill_(5.0)
    slots.release(first)
    assert slots.allocator.free_pages.tolist() == [7, 8, 1, 2, 3]
    assert slots.rows.free_rows == [1]
    assert (first.slots, first.written) == ([], 0)
    assert len(buffers) == 4
    for buffer in buffers:
        assert buffer[:, 0, 0].tolist() == [5, POISON, POISON, POISON, 5, 5, 5, 5, 5]


def test_kept_slots_stay_and_are_not_poisoned() -> None:
    slots = keeper(page_size=2)
    live = slots.admit(0, [], 8)
    slots.reserve(live, 5)
    kv_buffers(slots.runners[0].token_to_kv_pool)[0].fill_(5.0)
    slots.release(live, keep=4)
    assert live.slots == [2, 3, 4, 5]
    assert slots.allocator.free_pages.tolist() == [4, 3]
    assert kv_buffers(slots.runners[0].token_to_kv_pool)[0][:, 0, 0].tolist() == [5] * 6 + [POISON] * 2 + [5, 5]


# --- sharing -----------------------------------------------------------------------------------------------------


def shared(slots: SlotKeeper) -> tuple[Any, Any]:
    """Request 0 with slots of three pages of two tokens, of which request 1 shares the first two pages."""
    source, live = slots.admit(0, [], 8), slots.admit(1, [], 8)
    slots.reserve(source, 6)
    source.length = 6
    slots.share(live, source, 4)
    return source, live


def test_cache_hit_begins_with_the_sources_slots_and_says_so_in_its_row() -> None:
    slots = keeper(page_size=2)
    _, live = shared(slots)
    assert (live.slots, live.length, live.shared, live.written) == ([2, 3, 4, 5], 4, 4, 4)
    assert row(slots, live, 5) == [2, 3, 4, 5, 0]


def test_tokens_behind_a_cache_hit_get_slots_of_their_own() -> None:
    slots = keeper(page_size=2)
    source, live = shared(slots)
    slots.reserve(live, 5)
    assert source.slots == [2, 3, 4, 5, 6, 7]
    assert live.slots == [2, 3, 4, 5, 8, 9]


@pytest.mark.parametrize("first", [0, 1])
def test_shared_pages_are_given_back_by_their_last_holder_alone(first: int) -> None:
    slots = keeper(page_size=2)
    lives = shared(slots)
    buffer = kv_buffers(slots.runners[0].token_to_kv_pool)[0]
    buffer.fill_(5.0)
    slots.release(lives[first])
    own = [3] if first == 0 else []  # request 0's third page is nobody else's
    assert slots.allocator.free_pages.tolist() == [4, *own]
    assert buffer[2:6, 0, 0].tolist() == [5.0] * 4
    slots.release(lives[1 - first])
    assert sorted(slots.allocator.free_pages.tolist()) == [1, 2, 3, 4]
    assert buffer[2:6, 0, 0].tolist() == [POISON] * 4


@pytest.mark.parametrize("tokens", [3, 8])
def test_part_of_a_page_or_more_than_there_is_cannot_be_shared(tokens: int) -> None:
    slots = keeper(page_size=2)
    source, live = slots.admit(0, [], 8), slots.admit(1, [], 8)
    slots.reserve(source, 6)
    source.length = 6
    with pytest.raises(AssertionError):
        slots.share(live, source, tokens)
