"""The fast interpreter gives what stock gives, bit for bit, checked or not."""

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

if type(tl.sum).__name__ != "InterpretedFunction":
    assert os.environ.get("SEAMRIPPER_REQUIRE_GPU"), "triton was imported before TRITON_INTERPRET was set"
    pytest.skip("interpreted kernels are no test of a GPU", allow_module_level=True)


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
