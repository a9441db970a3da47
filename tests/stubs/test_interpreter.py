"""The fast interpreter gives what stock gives, bit for bit; the checker reports planted faults and nothing else."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

os.environ["TRITON_INTERPRET"] = "1"  # read when triton.language is first imported

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import numpy as np
import triton.language as tl

from stubs import interpreter
from stubs.interpreter_log import SlotPolicy

if type(tl.sum).__name__ != "InterpretedFunction":
    pytest.skip("triton was imported before TRITON_INTERPRET was set", allow_module_level=True)


@triton.jit
def mixed_arithmetic(x, i, y, j, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    a = tl.load(x + at, mask=live, other=0.5)
    b = tl.load(i + at, mask=live, other=3)
    c = tl.where((b % 3 == 0) & live, a * scale, tl.exp(-tl.abs(a).to(tl.float32)) + b)
    for k in range(1, 4):
        c = tl.maximum(c, a - k) / (k + 1)
    tl.store(y + at, c, mask=live)
    tl.store(j + at, (b * 7 - at) // 5 + (b >> 1) ^ (b & 13), mask=live & (b > 0))


@triton.jit
def attend(q, k, v, o, rows, n, D: tl.constexpr, BLOCK: tl.constexpr, CAP: tl.constexpr):
    head = tl.program_id(0)
    d = tl.arange(0, D)
    query = tl.load(q + head * D + d).to(tl.float32)
    most = -float("inf")
    total = 0.0
    acc = tl.zeros([D], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        row = tl.load(rows + at, mask=at < n, other=0)
        keys = tl.load(k + row[:, None] * D + d[None, :], mask=(at < n)[:, None], other=0.0)
        score = tl.sum(query[None, :] * keys, axis=1)
        if CAP > 0:
            score = CAP * (2 * tl.sigmoid(2 * score / CAP) - 1)
        score = tl.where(at < n, score, -float("inf"))
        high = tl.maximum(tl.max(score, axis=0), most)
        weight = tl.exp(score - high)
        shrink = tl.exp(most - high)
        values = tl.load(v + row[:, None] * D + d[None, :], mask=(at < n)[:, None], other=0.0)
        acc = acc * shrink + tl.sum(weight[:, None] * values, axis=0)
        total = total * shrink + tl.sum(weight, axis=0)
        most = high
    tl.store(o + head * D + d, (acc / total).to(o.dtype.element_ty))


@triton.jit
def multiply(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    out = tl.dot(left, right, out_dtype=tl.float32)
    tl.store(c + m[:, None] * N + n[None, :], tl.trans(tl.trans(out)) + tl.max(out, axis=1)[:, None])


@triton.jit
def count(keys, bins, sums, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + at, mask=at < n, other=0)
    tl.atomic_add(bins + key, 1, mask=at < n)
    running = tl.cumsum(key, axis=0)
    tl.store(sums + at, running + tl.cdiv(n, BLOCK), mask=at < n)


def launch_mixed(random_: random.Random, numbers: Any) -> list[Any]:
    n = random_.randint(1, 90)
    float_type = random_.choice([torch.float32, torch.float16])
    int_type = random_.choice([torch.int32, torch.int64, torch.int16, torch.uint8])
    x = torch.randn(n, generator=numbers).to(float_type)
    i = torch.randint(0, 100, (n,), generator=numbers).to(int_type)
    y, j = torch.zeros_like(x), torch.zeros(n, dtype=torch.int64)
    block = random_.choice([16, 32])
    mixed_arithmetic[(triton.cdiv(n, block),)](x, i, y, j, n, random_.choice([0.5, -2.0, 3]), BLOCK=block)
    return [y, j]


def launch_attend(random_: random.Random, numbers: Any) -> list[Any]:
    heads, width, n, slots = random_.randint(1, 2), random_.choice([8, 16]), random_.randint(1, 30), 40
    dtype = random_.choice([torch.float32, torch.float16])
    q_dtype = random_.choice([dtype, torch.bfloat16])  # of q and o only: 3.8's interpreter has no bfloat16 constants
    q = torch.randn(heads, width, generator=numbers).to(q_dtype)
    k, v = (torch.randn(slots, width, generator=numbers, dtype=dtype) for _ in range(2))
    rows = torch.randperm(slots, generator=numbers)[:n].to(random_.choice([torch.int32, torch.int64]))
    o = torch.zeros_like(q)
    attend[(heads,)](q, k, v, o, rows, n, D=width, BLOCK=16, CAP=random_.choice([0, 5]))
    return [o]


def launch_multiply(random_: random.Random, numbers: Any) -> list[Any]:
    m, n, k = (random_.choice([4, 8, 16]) for _ in range(3))
    dtype = random_.choice([torch.float32, torch.float16])
    a, b = torch.randn(m, k, generator=numbers).to(dtype), torch.randn(k, n, generator=numbers).to(dtype)
    c = torch.zeros(m, n)
    multiply[(1,)](a, b, c, M=m, N=n, K=k)
    return [c]


def launch_count(random_: random.Random, numbers: Any) -> list[Any]:
    n = random_.randint(1, 60)
    keys = torch.randint(0, 5, (n,), generator=numbers, dtype=torch.int32)
    bins, sums = torch.zeros(5, dtype=torch.int32), torch.zeros(n, dtype=torch.int32)
    count[(triton.cdiv(n, 16),)](keys, bins, sums, n, BLOCK=16)
    return [bins, sums]


LAUNCHES: tuple[Callable[[random.Random, Any], list[Any]], ...] = (
    launch_mixed,
    launch_attend,
    launch_multiply,
    launch_count,
)


def all_bytes(seed: int) -> list[bytes]:
    """What one launch wrote, by the seed."""
    random_ = random.Random(seed)
    launch = LAUNCHES[seed % len(LAUNCHES)]
    with np.errstate(all="ignore"):
        written = launch(random_, torch.Generator().manual_seed(seed))
    return [tensor.view(torch.uint8).numpy().tobytes() for tensor in written]


@pytest.fixture(scope="module")
def stock() -> dict[int, list[bytes]]:
    return {seed: all_bytes(seed) for seed in range(200)}


def test_200_random_launches_equal_stock_bit_for_bit(stock: dict[int, list[bytes]]) -> None:
    with interpreter.fast():
        assert {seed: all_bytes(seed) for seed in range(200)} == stock


def test_checked_launches_equal_stock_and_raise_no_alarm(stock: dict[int, list[bytes]]) -> None:
    with interpreter.checked() as log:
        assert {seed: all_bytes(seed) for seed in range(200)} == stock
    assert log.violations == []
    assert log.launches == 200


def test_stock_is_back_after_fast(stock: dict[int, list[bytes]]) -> None:
    module: Any = interpreter.interpreter_module()
    before = (
        module.GridExecutor.__call__,
        module.InterpretedFunction.__call__,
        tl.load,
        module.interpreter_builder.options,
    )
    with interpreter.fast():
        assert module.GridExecutor.__call__ is not before[0]
    after = (
        module.GridExecutor.__call__,
        module.InterpretedFunction.__call__,
        tl.load,
        module.interpreter_builder.options,
    )
    assert after == before
    assert all_bytes(3) == stock[3]


def test_an_error_in_a_kernel_arrives_wrapped_as_in_stock() -> None:
    with interpreter.fast(), pytest.raises(triton.runtime.errors.InterpreterError, match="power of 2"):
        multiply[(1,)](torch.zeros(3), torch.zeros(3), torch.zeros(3), M=3, N=4, K=4)


# ---- the checker


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def copy_unmasked(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))


@triton.jit
def gather(index, x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    picked = tl.load(index + at, mask=at < n, other=0)
    tl.store(y + at, tl.load(x + picked, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def scatter(index, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    picked = tl.load(index + at, mask=at < n, other=0)
    tl.store(y + picked, 1.0, mask=at < n)


@triton.jit
def add_atomically(y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.atomic_add(y + at, 1.0, mask=at < n)


@triton.jit
def swap_atomically(y, at):
    tl.atomic_cas(y + at, 0, 5)


@triton.jit
def either(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(tl.where(at < n, x + at, y + at)))


@triton.jit
def through_table(table, y, n, BLOCK: tl.constexpr):
    pointer = tl.load(table).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(pointer + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def as_bytes(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x.to(tl.pointer_type(tl.uint8), bitcast=True) + at))


@triton.jit
def described(x, y, m, n, BLOCK: tl.constexpr):
    block = tl.make_tensor_descriptor(x, shape=[m, n], strides=[n, 1], block_shape=[BLOCK, BLOCK]).load([0, 0])
    at = tl.arange(0, BLOCK)
    tl.store(y + at[:, None] * BLOCK + at[None, :], block)


@triton.jit
def scaled_index(x, y, step, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at * step))


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
    assert os.path.basename(violation.file) == "test_interpreter.py"


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


# ---- rows of a KV buffer


def attend_rows(pool: Any, rows: Any, **policy: Any) -> Any:
    """One query over ``rows`` of ``pool`` [slots, 8], as keys and values, under a policy."""
    out = zeros(1, 8)
    with interpreter.checked([SlotPolicy("kv", pool, **policy)]) as log:
        attend[(1,)](torch.ones(1, 8), pool, pool, out, rows, len(rows), D=8, BLOCK=4, CAP=0)
    return log


def allowed(*rows: int) -> Any:
    mask = np.zeros(10, bool)
    mask[list(rows)] = True
    return mask


def test_reading_owned_rows_raises_no_alarm() -> None:
    assert attend_rows(zeros(10, 8), index(2, 5, 7), readable=allowed(2, 5, 7)).violations == []


def test_reading_a_row_of_nobody_is_reported_with_the_row() -> None:
    log = attend_rows(zeros(10, 8), index(2, 6, 7), readable=allowed(2, 5, 7))
    assert {(v.kind, v.argument, v.row, v.lands_in) for v in log.violations} == {
        ("row_read", "k", 6, "kv"),
        ("row_read", "v", 6, "kv"),
    }


def test_rows_count_from_the_buffer_and_not_from_the_view() -> None:
    pool = zeros(10, 8)
    out = zeros(1, 8)
    with interpreter.checked([SlotPolicy("kv", pool, readable=allowed(4))]) as log:
        attend[(1,)](torch.ones(1, 8), pool[3:], pool[3:], out, index(1, 2), 2, D=8, BLOCK=4, CAP=0)
    assert {v.row for v in log.violations} == {5}


def test_writing_a_row_that_the_step_does_not_own_is_reported() -> None:
    pool = zeros(10, 1)
    with interpreter.checked([SlotPolicy("kv", pool, writable=allowed(3))]) as log:
        scatter[(1,)](index(3, 4), pool, 2, BLOCK=2)
    assert [(v.kind, v.access, v.row) for v in log.violations] == [("row_write", "store", 4)]


def test_one_request_reading_another_ones_row_is_reported_with_the_request() -> None:
    own = np.stack([allowed(1, 2), allowed(3)])
    log = attend_rows(zeros(10, 8), index(1, 3), readable=own, request_of=lambda kernel, program: program[0])
    assert {(v.kind, v.row, v.request) for v in log.violations} == {("row_read", 3, 0)}


def test_rows_of_any_request_are_allowed_where_the_request_is_not_known() -> None:
    own = np.stack([allowed(1, 2), allowed(3)])
    assert (
        attend_rows(zeros(10, 8), index(1, 3), readable=own, request_of=lambda kernel, program: None).violations == []
    )
