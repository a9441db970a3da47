"""KV rows: who may read and write which, and how a program gives away for which request it works."""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when triton.language is first imported

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import numpy as np
import triton.language as tl

from stubs import interpreter
from stubs.interpreter_log import Batch, Log, RequestRows, SlotPolicy
from tests.stubs.planted_kernels import (
    add_to_slots,
    append_to_table,
    copy,
    sum_by_table,
    sum_ordered,
    sum_paged,
    sum_searched,
    write_slots,
)

if type(tl.sum).__name__ != "InterpretedFunction":
    assert os.environ.get("SEAMRIPPER_REQUIRE_GPU"), "triton was imported before TRITON_INTERPRET was set"
    pytest.skip("interpreted kernels are no test of a GPU", allow_module_level=True)

SLOTS, D, BLOCK = 10, 8, 4
# Three requests, named 4, 5 and 6: what they hold, the last of each slot being new in this step.
HELD = ((2, 5, 7), (1, 3), (8, 9, 2))
ROWS, WIDTH = (3, 0, 2), 6  # of the table of slots


def mask(size: int, *rows: int) -> Any:
    made = np.zeros(size, bool)
    made[list(rows)] = True
    return made


def policy(pool: Any) -> SlotPolicy:
    own = [RequestRows(4 + i, mask(SLOTS, *slots), mask(SLOTS, slots[-1])) for i, slots in enumerate(HELD)]
    return SlotPolicy("kv", pool, mask(SLOTS, 1, 2, 3, 5, 7, 8, 9), mask(SLOTS, 7, 3, 2), own)


def table_policy(table: Any) -> SlotPolicy:
    own = []
    for i, slots in enumerate(HELD):
        entries = range(ROWS[i] * WIDTH, ROWS[i] * WIDTH + len(slots))
        own.append(RequestRows(4 + i, mask(table.numel(), *entries), mask(table.numel())))
    readable = np.logical_or.reduce([rows.readable for rows in own])
    return SlotPolicy("table", table.view(-1), readable, mask(table.numel()), own, "entry")


def ints(*values: int) -> Any:
    return torch.tensor(values, dtype=torch.int32)


def metadata(held: tuple[tuple[int, ...], ...] = HELD) -> tuple[Any, Any]:
    """(indptr, indices) of what the requests are made to read."""
    indptr = [0]
    for slots in held:
        indptr.append(indptr[-1] + len(slots))
    return ints(*indptr), ints(*(slot for slots in held for slot in slots))


def summed(kernel: Any, held: tuple[tuple[int, ...], ...], programs: int, *more: Any) -> Log:
    pool, out = torch.zeros(SLOTS, D), torch.zeros(len(held), D)
    with interpreter.checked([policy(pool)], batch=Batch(len(held))) as log:
        kernel[(programs,)](pool, out, *metadata(held), *more, D=D, BLOCK=BLOCK)
    return log


def told(log: Log) -> set[Any]:
    return {(v.kind, v.access, v.argument, v.row, v.request) for v in log.violations}


def test_each_request_reads_its_own_rows() -> None:
    assert summed(sum_paged, HELD, 3).violations == []
    assert summed(sum_ordered, HELD, 3, ints(2, 0, 1)).violations == []
    assert summed(sum_searched, HELD, 8).violations == []


def test_a_row_of_another_request_is_reported_with_the_request() -> None:
    assert told(summed(sum_paged, ((2, 5, 7), (1, 5), (8, 9, 2)), 3)) == {("row_read", "load", "pool", 5, 5)}


def test_a_row_of_nobody_is_reported_with_the_request() -> None:
    assert told(summed(sum_paged, ((2, 6, 7), (1, 3), (8, 9, 2)), 3)) == {("row_read", "load", "pool", 6, 4)}


def test_a_length_one_too_long_reads_the_next_requests_row() -> None:
    pool, out = torch.zeros(SLOTS, D), torch.zeros(3, D)
    indptr, indices = metadata()
    indptr[1] += 1  # the first request reads one entry more, the second begins one late
    with interpreter.checked([policy(pool)], batch=Batch(3)) as log:
        sum_paged[(3,)](pool, out, indptr, indices, D=D, BLOCK=BLOCK)
    assert told(log) == {("row_read", "load", "pool", 1, 4)}


def test_the_request_is_told_by_what_is_loaded_and_not_by_the_programs_number() -> None:
    log = summed(sum_ordered, ((2, 5, 7), (1, 5), (8, 9, 2)), 3, ints(2, 0, 1))
    assert [(v.program[0], v.request, v.row) for v in log.violations] == [(2, 5, 5)]


def test_after_a_search_the_request_is_the_one_found() -> None:
    log = summed(sum_searched, ((2, 5, 7), (1, 3), (8, 9, 3)), 8)
    assert [(v.program[0], v.request, v.row) for v in log.violations] == [(5, 6, 3), (6, 6, 3), (7, 6, 3)]


def test_a_lone_request_is_known_whatever_is_loaded() -> None:
    pool, out = torch.zeros(SLOTS, D), torch.zeros(1, D)
    with interpreter.checked([policy(pool)], batch=Batch(1)) as log:
        sum_by_table[(1,)](pool, out, ints(0), ints(2), ints(2, 1), 2, D=D, BLOCK=BLOCK)
    assert told(log) == {("row_read", "load", "pool", 1, 4)}


def test_where_nothing_tells_the_request_rows_of_any_are_allowed() -> None:
    pool, out = torch.zeros(SLOTS, D), torch.zeros(3, D)
    table = ints(2, 5, 3, 8)
    with interpreter.checked([policy(pool)], batch=Batch(3)) as log:
        sum_by_table[(1,)](pool, out, ints(0), ints(3), table, 4, D=D, BLOCK=BLOCK)
    assert log.violations == []


def test_a_vector_that_falls_tells_no_request() -> None:
    pool, out = torch.zeros(SLOTS, D), torch.zeros(3, D)
    with interpreter.checked([policy(pool)], batch=Batch(3)) as log:
        sum_paged[(1,)](pool, out, ints(0, 2, 1, 5), ints(1, 5, 2, 5, 5), D=D, BLOCK=BLOCK)
    assert log.violations == []


def by_table(*changes: tuple[int, int, int], lengths: Any = None) -> Log:
    """Every request reads through the table of slots, in which some (row, place) hold another slot than they should."""
    pool, out, table = torch.zeros(SLOTS, D), torch.zeros(3, D), torch.zeros(4, WIDTH, dtype=torch.int32)
    for row, slots in zip(ROWS, HELD, strict=True):
        table[row, : len(slots)] = ints(*slots)
    for row, place, slot in changes:
        table[row, place] = slot
    rows, lengths = ints(*ROWS), ints(3, 2, 3) if lengths is None else lengths
    batch = Batch(3, [rows, lengths])
    with interpreter.checked([policy(pool), table_policy(table)], batch=batch) as log:
        sum_by_table[(3,)](pool, out, rows, lengths, table, WIDTH, D=D, BLOCK=BLOCK)
    return log


def test_a_page_table_that_is_right_raises_no_alarm() -> None:
    assert by_table().violations == []


def test_a_stale_page_table_is_reported_with_row_and_request() -> None:
    assert told(by_table((2, 0, 1))) == {("row_read", "load", "pool", 1, 6)}


def test_entries_behind_a_requests_tokens_are_not_to_be_read() -> None:
    assert told(by_table(lengths=ints(3, 3, 3))) == {
        ("entry_read", "load", "table", 2, 5),
        ("row_read", "load", "pool", 0, 5),
    }


def test_writing_the_new_slots_raises_no_alarm() -> None:
    pool = torch.zeros(SLOTS, D)
    with interpreter.checked([policy(pool)], batch=Batch(3)) as log:
        write_slots[(1,)](pool, ints(7, 3, 2), 3, D=D, BLOCK=BLOCK)
        add_to_slots[(1,)](pool, ints(7, 3, 2), 3, D=D, BLOCK=BLOCK)
    assert log.violations == []


@pytest.mark.parametrize(("kernel", "access"), [(write_slots, "store"), (add_to_slots, "atomic")])
def test_a_write_one_slot_too_far_is_reported(kernel: Any, access: str) -> None:
    pool = torch.zeros(SLOTS, D)
    with interpreter.checked([policy(pool)], batch=Batch(3)) as log:
        kernel[(1,)](pool, ints(7, 4, 2), 3, D=D, BLOCK=BLOCK)
    assert told(log) == {("row_write", access, "pool", 4, None)}


def test_writing_to_a_table_that_may_only_be_read_is_reported() -> None:
    table = torch.zeros(4, WIDTH, dtype=torch.int32)
    with interpreter.checked([table_policy(table)], batch=Batch(3)) as log:
        append_to_table[(1,)](table, 3, WIDTH, 3)
    assert told(log) == {("entry_write", "store", "table", 21, None)}


def test_rows_count_from_the_buffer_and_not_from_the_view() -> None:
    pool, out = torch.zeros(SLOTS, D), torch.zeros(1, D)
    with interpreter.checked([SlotPolicy("kv", pool, readable=mask(SLOTS, 4))]) as log:
        sum_paged[(1,)](pool[3:], out, ints(0, 2), ints(1, 2), D=D, BLOCK=BLOCK)
    assert {v.row for v in log.violations} == {5}


def test_a_buffer_under_no_policy_is_anybodys() -> None:
    with interpreter.checked([policy(torch.zeros(SLOTS, D))]) as log:
        copy[(1,)](torch.zeros(16), torch.zeros(16), 16, BLOCK=16)
    assert log.violations == []
