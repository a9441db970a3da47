"""The small scheduler, without SGLang: what each op's batch holds, and what is left behind it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stubs.plan import RowInput
from tests.stubs.toy_memory import without_sglang
from tests.stubs.toy_scheduler import EAGLE, extend, history, rows, run, scheduler


@pytest.fixture(autouse=True)
def _no_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    without_sglang(monkeypatch)


# --- extend ------------------------------------------------------------------------------------------------------


def test_extend_of_new_requests() -> None:
    target = scheduler()
    (plan,) = extend(target, RowInput(0, 3), RowInput(1, 2))
    batch = plan.forward_batch
    assert (plan.mode, batch.forward_mode.name, plan.tokens) == ("extend", "EXTEND", 5)
    assert rows(plan) == [(0, 0, 3, 0), (1, 3, 2, 0)]
    assert (batch.prefix_lens, batch.extend_lens, batch.extend_num_tokens) == ([0, 0], [3, 2], 5)
    assert (batch.seq_lens.tolist(), batch.seq_lens_cpu.tolist(), batch.seq_lens_sum) == ([3, 2], [3, 2], 5)
    assert (batch.req_pool_indices.tolist(), batch.out_cache_loc.tolist()) == ([1, 2], [1, 2, 3, 4, 5])
    assert len(batch.input_ids) == 5
    assert (batch.seq_lens.dtype, batch.orig_seq_lens.dtype) == (torch.int64, torch.int32)
    assert [live.length for live in target.live.values()] == [3, 2]


def test_step_is_described_in_plain_data() -> None:
    (plan,) = extend(scheduler(), RowInput(0, 2))
    assert plan.batch == {
        "seq_lens": [2],
        "seq_lens_cpu": [2],
        "seq_lens_sum": 2,
        "req_pool_indices": [1],
        "out_cache_loc": [1, 2],
        "positions": None,
        "forward_mode": "EXTEND",
        "requests": [0],
        "prefix": [0],
        "count": [2],
        "slots": [[1, 2]],
    }


def test_cached_prefix_is_not_computed_again() -> None:
    target = scheduler(page_size=2)
    extend(target, RowInput(0, 5), value=10)
    (plan,) = extend(target, RowInput(1, 1, cached_from=0, cached=4), value=50)
    assert (plan.mode, rows(plan)) == ("extend_prefix", [(1, 0, 1, 4)])
    assert plan.forward_batch.seq_lens.tolist() == [5]
    assert plan.batch["slots"] == [[2, 3, 4, 5, 8]]
    assert history(target, 1) == [10, 11, 12, 13, 50]


def test_chunks_of_one_prompt_go_on_where_the_last_ended() -> None:
    target = scheduler()
    first, last = (
        extend(target, RowInput(0, n, more=more), value=v)[0] for n, more, v in ((4, True, 0), (2, False, 9))
    )
    assert (first.mode, last.mode) == ("extend_chunked", "extend_chunked")
    assert rows(last) == [(0, 0, 2, 4)]
    assert (target.live[0].length, target.live[0].chunking) == (6, False)
    assert history(target, 0) == [0, 1, 2, 3, 9, 10]


def test_prompt_after_the_last_chunk_is_no_chunk() -> None:
    target = scheduler()
    extend(target, RowInput(0, 4, more=True))
    extend(target, RowInput(0, 1))
    assert extend(target, RowInput(1, 1))[0].mode == "extend"


# --- decode, mixed, idle -----------------------------------------------------------------------------------------


def test_decode_adds_one_token_to_each() -> None:
    target = scheduler()
    extend(target, RowInput(0, 3), RowInput(1, 1))
    (plan,) = run(target, target.decode([1, 0]), 20)
    batch = plan.forward_batch
    assert (plan.mode, batch.forward_mode.name, rows(plan)) == ("decode", "DECODE", [(1, 0, 1, 1), (0, 1, 1, 3)])
    assert (batch.seq_lens.tolist(), batch.out_cache_loc.tolist()) == ([2, 4], [5, 6])
    assert [target.live[request].length for request in (0, 1)] == [4, 2]
    assert (history(target, 0), history(target, 1)) == ([0, 1, 2, 21], [3, 20])


def test_mixed_batch_has_the_running_requests_behind_the_prompts() -> None:
    target = scheduler()
    extend(target, RowInput(0, 3))
    (plan,) = run(target, target.mixed([RowInput(1, 2, more=True)], [0]), 20)
    batch = plan.forward_batch
    assert (plan.mode, batch.forward_mode.name, rows(plan)) == ("mixed", "MIXED", [(1, 0, 2, 0), (0, 2, 1, 3)])
    assert (batch.prefix_lens, batch.extend_lens, batch.extend_num_tokens) == ([0, 3], [2, 1], 3)
    assert batch.decoding_reqs == [target.live[0].record]
    assert [target.live[request].length for request in (0, 1)] == [4, 2]
    assert target.live[1].chunking


def test_idle_batch_is_empty() -> None:
    target = scheduler()
    (plan,) = run(target, target.idle())
    batch = plan.forward_batch
    assert (plan.mode, batch.forward_mode.name, plan.tokens) == ("idle", "IDLE", 0)
    assert (len(batch.seq_lens), len(batch.out_cache_loc), batch.seq_lens_sum) == (0, 0, 0)


# --- leaving -----------------------------------------------------------------------------------------------------


def test_finished_request_is_gone_and_its_slots_are_taken_last() -> None:
    target = scheduler(max_total_tokens=6)
    extend(target, RowInput(0, 3))
    target.finish([0], keep=False)
    assert target.live == {}
    (plan,) = extend(target, RowInput(1, 5))
    assert plan.batch["slots"] == [[4, 5, 6, 1, 2]]


def test_kept_request_keeps_whole_pages_that_can_be_hit() -> None:
    target = scheduler(page_size=4)
    extend(target, RowInput(0, 9))
    target.finish([0], keep=True)
    assert (target.live[0].length, len(target.live[0].slots)) == (8, 8)
    (plan,) = extend(target, RowInput(1, 1, cached_from=0, cached=8))
    assert plan.batch["slots"] == [[4, 5, 6, 7, 8, 9, 10, 11, 16]]


@pytest.mark.parametrize(("speculation", "length"), [({}, 8), (EAGLE, 4)])
def test_eagles_prefix_cache_knows_one_token_fewer(speculation: dict[str, Any], length: int) -> None:
    target = scheduler(page_size=4, **speculation)
    extend(target, RowInput(0, 8))
    target.finish([0], keep=True)
    assert target.live[0].length == length


def test_request_shorter_than_a_page_leaves_nothing_to_keep() -> None:
    target = scheduler(page_size=4)
    extend(target, RowInput(0, 3))
    target.finish([0], keep=True)
    assert target.live == {}


def test_retracted_request_begins_anew() -> None:
    target = scheduler()
    extend(target, RowInput(0, 3), value=10)
    target.retract([0])
    assert target.live == {}
    assert target.slots.allocator.free_pages[-3:].tolist() == [1, 2, 3]
    (plan,) = extend(target, RowInput(0, 4), value=20)
    assert (plan.mode, rows(plan), plan.batch["slots"]) == ("extend", [(0, 0, 4, 0)], [[4, 5, 6, 7]])
    assert history(target, 0) == [20, 21, 22, 23]


# --- speculation -------------------------------------------------------------------------------------------------


def test_prompt_of_a_speculating_server_is_extended_on_the_draft_model_too() -> None:
    target = scheduler(**EAGLE)
    plans = extend(target, RowInput(0, 2))
    assert [(plan.mode, plan.on_draft) for plan in plans] == [("extend", False), ("draft_prefill", True)]
    assert plans[1].runner is target.server.draft
    assert target.live[0].draft[0].k[:, 0, 0].tolist() == [0, 1]
