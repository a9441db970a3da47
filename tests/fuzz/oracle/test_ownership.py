"""What each request of a step may touch, as the bounds oracle tells the checker, and guards that were written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzz.oracle.bounds import batch_of, guards_intact, kernels_in_bounds, slot_policies, table_policy
from fuzz.oracle.view import Strays
from stubs.guards import surround
from stubs.interpreter_log import Violation
from stubs.plan import RowPlan, StepPlan


def plan(*rows: tuple[int, list[int], int, int], window: int = 0) -> Any:
    """A step on a pool of one layer and 8 slots; each row is (row of the table, slots, prefix, count)."""
    runner = SimpleNamespace(
        token_to_kv_pool=SimpleNamespace(k_buffer=[torch.zeros(8, 1, 2)], v_buffer=[torch.zeros(8, 1, 2)]),
        req_to_token_pool=SimpleNamespace(req_to_token=torch.zeros(3, 4, dtype=torch.int32)),
        sliding_window_size=window or None,
    )
    parts = []
    for number, (row, slots, prefix, count) in enumerate(rows):
        live: Any = SimpleNamespace(row=row, slots=slots, request_id=10 + number)
        parts.append(RowPlan(live, 0, count, prefix))
    batch = SimpleNamespace(req_pool_indices=torch.zeros(len(rows)), seq_lens=torch.zeros(len(rows)))
    return StepPlan("decode", False, runner, batch, tuple(parts))


def rows(allowed: Any) -> list[int]:
    return [int(row) for row in allowed.nonzero()[0]]


def test_a_request_reads_its_own_rows_and_writes_its_new_ones() -> None:
    for policy in slot_policies(plan((1, [3, 1, 5, 6], 2, 1), (2, [7, 2], 0, 2))):
        told = [(own.request, rows(own.readable), rows(own.writable)) for own in policy.by_request]
        assert told == [(10, [1, 3, 5], [5]), (11, [2, 7], [2, 7])]


@pytest.mark.parametrize(
    ("window", "readable"), [(0, [1, 2, 3, 4, 5]), (1, [3, 4, 5]), (2, [2, 3, 4, 5]), (9, [1, 2, 3, 4, 5])]
)
def test_a_window_ends_that_many_tokens_before_the_first_new_one(window: int, readable: list[int]) -> None:
    for policy in slot_policies(plan((1, [1, 2, 3, 4, 5], 3, 2), window=window)):
        assert (rows(policy.by_request[0].readable), rows(policy.readable)) == (readable, readable)


def test_entries_of_a_requests_tokens_may_be_read_and_none_written() -> None:
    policy = table_policy(plan((2, [3, 1, 5, 6], 2, 1), (0, [7, 2], 0, 2)))
    assert (policy.unit, rows(policy.readable), rows(policy.writable)) == ("entry", [0, 1, 8, 9, 10], [])
    assert [rows(own.readable) for own in policy.by_request] == [[8, 9, 10], [0, 1]]


def test_programs_are_told_apart_by_the_tensors_of_the_batch_that_there_are() -> None:
    step = plan((1, [3], 0, 1), (2, [4], 0, 1))
    batch = batch_of(step)
    assert batch.count == 2
    assert [id(array) for array in batch.arrays] == [
        id(step.forward_batch.req_pool_indices),
        id(step.forward_batch.seq_lens),
    ]


def test_a_violation_of_a_known_request_names_it() -> None:
    violation = Violation(
        kind="row_read", access="load", kernel="_fwd_kernel", argument="K_Buffer", program=(0, 0, 0), lanes=1, offset=8,
        offset_min=8, offset_max=8, extent=16, shape=(8, 2), stride=(2, 1), dtype="float32", lands_in="K of layer 0",
        row=4, request=11, file="kernel.py", line=7, text="tl.load(K_Buffer + offs)",
    )  # fmt: skip
    view: Any = SimpleNamespace(plan=SimpleNamespace(mode="decode"), strays=Strays((violation,)))
    (fault,) = kernels_in_bounds(view)
    assert fault.title == "_fwd_kernel reads KV rows that its request may not read through K_Buffer"
    assert fault.evidence["request"] == "11"
    assert "through K_Buffer of request 11 in _fwd_kernel(0, 0, 0)" in fault.message


class Leaf:
    """A backend by name."""


def guarded() -> tuple[Any, Any]:
    pool = SimpleNamespace(k_buffer=[torch.zeros(8, 1, 2)])
    runner = SimpleNamespace(guards=surround(pool, ("k_buffer",)))
    return SimpleNamespace(plan=SimpleNamespace(mode="decode", runner=runner), leaf=Leaf()), pool


def test_guards_that_hold_what_they_held_are_no_fault() -> None:
    view, pool = guarded()
    pool.k_buffer[0].fill_(5)
    assert guards_intact(view) == []


def test_a_write_behind_a_buffer_is_a_fault_of_the_step_that_made_it() -> None:
    view, pool = guarded()
    pool.k_buffer[0].as_strided((9, 2), (2, 1))[8] = 1
    (fault,) = guards_intact(view)
    assert str(fault.signature) == "bounds/guard_overwritten/Leaf.k_buffer"
    assert fault.title == "decode on Leaf writes outside of k_buffer"
    assert "elements [16, 17] (2 in all)" in fault.message
    assert guards_intact(view) == []


def test_a_runner_without_guards_has_none_overwritten() -> None:
    view: Any = SimpleNamespace(plan=SimpleNamespace(mode="decode", runner=SimpleNamespace()), leaf=Leaf())
    assert guards_intact(view) == []
