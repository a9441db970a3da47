"""Faults planted in kernels' launches are reported by kind, access and argument, and launches within bounds are not."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when triton.language is first imported

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton.language as tl

from stubs import interpreter, uninitialised
from tests.stubs.planted_kernels import (
    add_atomically,
    add_far,
    add_through_table,
    as_bytes,
    copy,
    copy_unmasked,
    described,
    either,
    fill_half_then_read,
    fill_then_read,
    gather,
    scaled_index,
    scatter,
    scatter_add,
    store_described,
    store_far,
    store_through_table,
    swap_atomically,
    through_table,
)

if type(tl.sum).__name__ != "InterpretedFunction":
    assert os.environ.get("SEAMRIPPER_REQUIRE_GPU"), "triton was imported before TRITON_INTERPRET was set"
    pytest.skip("interpreted kernels are no test of a GPU", allow_module_level=True)


def zeros(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.zeros(*shape, dtype=dtype)


def untouched(size: int) -> Any:
    """Bytes that take no memory until they are read: an index past 2**31 needs a buffer that large."""
    return torch.empty(size, dtype=torch.uint8)


def index(*values: int, dtype: Any = torch.int32) -> Any:
    return torch.tensor(values, dtype=dtype)


def halves(size: int) -> tuple[Any, Any]:
    pool = zeros(2 * size)
    return pool[:size], pool[size:]


def unwritten(*shape: int, dtype: Any = torch.float32) -> Any:
    made = torch.zeros(*shape, dtype=dtype)
    uninitialised.fill(made)
    return made


def partly_written(size: int, written: int, dtype: Any = torch.float32) -> Any:
    made = unwritten(size, dtype=dtype)
    made[:written] = 1
    return made


FAULTS: list[tuple[str, str, str, Callable[[], Any]]] = [
    ("storage", "load", "x", lambda: copy_unmasked[(1,)](zeros(15), zeros(16), BLOCK=16)),
    ("storage", "store", "y", lambda: copy_unmasked[(1,)](zeros(16), zeros(15), BLOCK=16)),
    ("storage", "load", "x", lambda: copy_unmasked[(2,)](zeros(16), zeros(32), BLOCK=16)),
    ("storage", "load", "x", lambda: copy[(1,)](zeros(15), zeros(16), 16, BLOCK=16)),
    ("storage", "load", "x", lambda: copy[(1,)](zeros(0), zeros(16), 1, BLOCK=16)),
    ("view", "load", "x", lambda: copy_unmasked[(1,)](zeros(40)[8:20], zeros(16), BLOCK=16)),
    ("view", "store", "y", lambda: copy_unmasked[(1,)](zeros(16), zeros(40)[8:20], BLOCK=16)),
    ("view", "load", "x", lambda: gather[(1,)](index(0, -1), zeros(40)[8:20], zeros(2), 2, BLOCK=2)),
    ("view", "load", "x", lambda: gather[(1,)](index(0, 9), *halves(8), 2, BLOCK=2)),
    ("hole", "load", "x", lambda: copy_unmasked[(1,)](zeros(4, 8)[:, :4], zeros(16), BLOCK=16)),
    ("hole", "store", "y", lambda: copy_unmasked[(1,)](zeros(16), zeros(4, 8)[:, :4], BLOCK=16)),
    ("hole", "load", "x", lambda: gather[(1,)](index(0, 1), zeros(16)[::2], zeros(2), 2, BLOCK=2)),
    ("storage", "load", "x", lambda: gather[(1,)](index(3, -2), zeros(8), zeros(2), 2, BLOCK=2)),
    ("storage", "load", "x", lambda: gather[(1,)](index(3, 8), zeros(8), zeros(2), 2, BLOCK=2)),
    ("storage", "load", "index", lambda: gather[(1,)](index(3, 4, 5), zeros(8), zeros(4), 4, BLOCK=4)),
    ("storage", "store", "y", lambda: scatter[(1,)](index(0, 7, 8, 1), zeros(8), 4, BLOCK=4)),
    ("storage", "store", "y", lambda: scatter[(1,)](index(0, -1), zeros(8), 2, BLOCK=2)),
    ("storage", "atomic", "y", lambda: add_atomically[(1,)](zeros(7), 8, BLOCK=8)),
    ("view", "atomic", "y", lambda: add_atomically[(1,)](zeros(12)[:7], 8, BLOCK=8)),
    ("hole", "atomic", "y", lambda: add_atomically[(1,)](zeros(8, 2)[:, 0], 8, BLOCK=8)),
    ("storage", "atomic", "y", lambda: swap_atomically[(1,)](index(0, 0), 2)),
    ("view", "atomic", "y", lambda: swap_atomically[(1,)](index(0, 0, 0)[:2], 2)),
    ("storage", "load", "y", lambda: either[(1,)](zeros(8), zeros(15), zeros(16), 8, BLOCK=16)),
    ("storage", "load", "x", lambda: either[(1,)](zeros(7), zeros(16), zeros(16), 8, BLOCK=16)),
    ("storage", "load", "x", lambda: as_bytes[(1,)](zeros(3), zeros(16, dtype=torch.uint8), BLOCK=16)),
    ("storage", "load", "x", lambda: described[(1,)](zeros(5, 8), zeros(64), 6, 8, BLOCK=8)),
    ("wrapped", "load", "x", lambda: scaled_index[(1,)](untouched(1 << 32), untouched(8), 1 << 29, BLOCK=8)),
    ("wrapped", "store", "y", lambda: store_far[(1,)](zeros(8), 1 << 32, BLOCK=8)),
    ("wrapped", "atomic", "y", lambda: add_far[(1,)](zeros(8), -(1 << 32), BLOCK=8)),
    ("storage", "store", "x", lambda: store_described[(1,)](zeros(5, 8), 6, 8, BLOCK=8)),
    ("view", "store", "y", lambda: scatter[(1,)](index(0, 9), halves(8)[0], 2, BLOCK=2)),
    ("view", "atomic", "y", lambda: scatter_add[(1,)](index(0, 9), halves(8)[0], 2, BLOCK=2)),
    ("storage", "atomic", "y", lambda: scatter_add[(1,)](index(0, -1), zeros(8), 2, BLOCK=2)),
    ("wild", "store", "an address", lambda: store_through_table[(1,)](index(64, dtype=torch.int64), BLOCK=4)),
    ("wild", "atomic", "an address", lambda: add_through_table[(1,)](index(64, dtype=torch.int64), BLOCK=4)),
    ("uninitialised", "load", "x", lambda: copy_unmasked[(1,)](unwritten(16), zeros(16), BLOCK=16)),
    ("uninitialised", "load", "x", lambda: copy[(1,)](partly_written(16, 9), zeros(16), 10, BLOCK=16)),
    ("uninitialised", "load", "x", lambda: copy[(1,)](unwritten(8, dtype=torch.float16), zeros(8), 8, BLOCK=8)),
    ("uninitialised", "load", "x", lambda: copy[(1,)](unwritten(8, dtype=torch.bfloat16), zeros(8), 8, BLOCK=8)),
    ("uninitialised", "load", "x", lambda: copy[(1,)](unwritten(8, dtype=torch.int64), zeros(8), 8, BLOCK=8)),
    ("uninitialised", "load", "x", lambda: copy[(1,)](unwritten(4, 8)[1:, :4], zeros(4), 4, BLOCK=4)),
    ("uninitialised", "load", "x", lambda: gather[(1,)](index(2, 5), partly_written(8, 5), zeros(2), 2, BLOCK=2)),
    ("uninitialised", "load", "scratch", lambda: fill_half_then_read[(1,)](unwritten(8), zeros(8), BLOCK=8)),
    ("uninitialised", "atomic", "y", lambda: add_atomically[(1,)](unwritten(8), 8, BLOCK=8)),
    ("uninitialised", "atomic", "y", lambda: swap_atomically[(1,)](unwritten(2, dtype=torch.int32), 1)),
    ("wild", "load", "an address", lambda: through_table[(1,)](index(64, dtype=torch.int64), zeros(4), 4, BLOCK=4)),
]


@pytest.mark.parametrize(("kind", "access", "argument", "launch"), FAULTS)
def test_a_planted_fault_is_reported_once_by_kind_and_argument(
    kind: str, access: str, argument: str, launch: Callable[[], Any]
) -> None:
    with interpreter.checked() as log:
        launch()
    assert {(v.kind, v.access, v.argument) for v in log.violations} == {(kind, access, argument)}


CONTROLS: list[Callable[[], Any]] = [
    lambda: copy[(2,)](zeros(20), zeros(20), 20, BLOCK=16),
    lambda: copy_unmasked[(1,)](zeros(16), zeros(16), BLOCK=16),
    lambda: copy_unmasked[(1,)](zeros(40)[8:24], zeros(40)[8:24], BLOCK=16),
    lambda: copy[(1,)](zeros(0), zeros(0), 0, BLOCK=16),
    lambda: gather[(1,)](index(0, 7), zeros(8), zeros(2), 2, BLOCK=2),
    lambda: gather[(1,)](index(0, 2), zeros(16)[::2], zeros(2), 2, BLOCK=2),
    lambda: gather[(1,)](index(0, 99), zeros(8), zeros(2), 1, BLOCK=2),
    lambda: scatter[(1,)](index(7, 0), zeros(8), 2, BLOCK=2),
    lambda: add_atomically[(1,)](zeros(8), 8, BLOCK=8),
    lambda: swap_atomically[(1,)](index(0, 0), 1),
    lambda: either[(1,)](zeros(8), zeros(16), zeros(16), 8, BLOCK=16),
    lambda: as_bytes[(1,)](zeros(4), zeros(16, dtype=torch.uint8), BLOCK=16),
    lambda: described[(1,)](zeros(5, 8), zeros(64), 5, 8, BLOCK=8),
    lambda: scaled_index[(1,)](zeros(29), zeros(8), 4, BLOCK=8),
    lambda: scatter_add[(1,)](index(7, 7), zeros(8), 2, BLOCK=2),
    lambda: store_far[(1,)](zeros(12), 4, BLOCK=8),
    lambda: store_described[(1,)](zeros(5, 8), 5, 8, BLOCK=8),
    lambda: copy[(1,)](partly_written(16, 9), zeros(16), 9, BLOCK=16),
    lambda: copy_unmasked[(1,)](zeros(16), unwritten(16), BLOCK=16),
    lambda: fill_then_read[(1,)](unwritten(8), zeros(8), BLOCK=8),
    lambda: gather[(1,)](index(2, 4), partly_written(8, 5), zeros(2), 2, BLOCK=2),
    lambda: copy[(1,)](torch.full((8,), float("nan")), zeros(8), 8, BLOCK=8),
]


@pytest.mark.parametrize("launch", CONTROLS)
def test_a_launch_within_its_buffers_raises_no_alarm(launch: Callable[[], Any]) -> None:
    with interpreter.checked() as log:
        launch()
    assert log.violations == []


def test_a_store_outside_the_storage_does_not_happen() -> None:
    guarded = zeros(16)
    own = torch.frombuffer(bytearray(32), dtype=torch.float32)
    with interpreter.checked():
        copy_unmasked[(1,)](torch.ones(16), own, BLOCK=16)
    assert own.tolist() == [1.0] * 8
    assert guarded.tolist() == [0.0] * 16


def test_a_violation_tells_where_it_was() -> None:
    with interpreter.checked() as log:
        gather[(1,)](index(3, 11, -2), zeros(8), zeros(3), 3, BLOCK=4)
    (violation,) = log.violations
    assert (violation.kernel, violation.program, violation.lanes) == ("gather", (0, 0, 0), 2)
    assert (violation.offset, violation.offset_min, violation.offset_max, violation.extent) == (11, -2, 11, 8)
    assert violation.text == "tl.store(y + at, tl.load(x + picked, mask=at < n, other=0.0), mask=at < n)"
    assert os.path.basename(violation.file) == "planted_kernels.py"


def test_where_a_stray_access_landed_is_named() -> None:
    low, high = halves(8)
    with interpreter.checked() as log:
        gather[(1,)](index(0, 9), low, high, 2, BLOCK=2)
    assert log.violations[0].lands_in == "y"


def test_an_address_from_a_table_may_reach_what_is_named_reachable() -> None:
    source = torch.ones(4)
    table, out = index(source.data_ptr(), dtype=torch.int64), zeros(4)
    with interpreter.checked(reachable=[source]) as log:
        through_table[(1,)](table, out, 4, BLOCK=4)
    assert log.violations == []
    assert out.tolist() == [1.0] * 4


def test_the_lanes_and_the_place_of_an_uninitialised_read_are_told() -> None:
    with interpreter.checked() as log:
        copy[(1,)](partly_written(16, 9), zeros(16), 12, BLOCK=16)
    (violation,) = log.violations
    assert (violation.lanes, violation.offset, violation.offset_min, violation.offset_max) == (3, 9, 9, 11)
