"""Kernels that the planted suite launches, in bounds or out of them as their arguments say."""

from __future__ import annotations

import triton
import triton.language as tl


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


@triton.jit
def store_through_table(table, BLOCK: tl.constexpr):
    pointer = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(pointer + tl.arange(0, BLOCK), 1.0)


@triton.jit
def add_through_table(table, BLOCK: tl.constexpr):
    pointer = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.atomic_add(pointer + tl.arange(0, BLOCK), 1.0)


@triton.jit
def scatter_add(index, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    picked = tl.load(index + at, mask=at < n, other=0)
    tl.atomic_add(y + picked, 1.0, mask=at < n)


@triton.jit
def store_far(y, past, BLOCK: tl.constexpr):
    tl.store(y + (tl.arange(0, BLOCK).to(tl.int64) + past), 1.0)


@triton.jit
def add_far(y, past, BLOCK: tl.constexpr):
    tl.atomic_add(y + (tl.arange(0, BLOCK).to(tl.int64) + past), 1.0)


@triton.jit
def store_described(x, m, n, BLOCK: tl.constexpr):
    block = tl.make_tensor_descriptor(x, shape=[m, n], strides=[n, 1], block_shape=[BLOCK, BLOCK])
    block.store([0, 0], tl.zeros([BLOCK, BLOCK], dtype=tl.float32))


@triton.jit
def fill_then_read(scratch, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(scratch + at, at.to(tl.float32))
    tl.store(y + at, tl.load(scratch + at) + tl.load(scratch + BLOCK - 1 - at))


@triton.jit
def fill_half_then_read(scratch, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(scratch + at, 1.0, mask=at < BLOCK // 2)
    tl.store(y + at, tl.load(scratch + at))


@triton.jit
def sum_paged(pool, out, indptr, indices, D: tl.constexpr, BLOCK: tl.constexpr):
    """Row r of out is the sum of the rows of ``pool`` that request r holds, r being the program's number."""
    request = tl.program_id(0)
    start = tl.load(indptr + request)
    length = tl.load(indptr + request + 1) - start
    sum_rows(pool, out + request * D, indices + start, length, D, BLOCK)


@triton.jit
def sum_ordered(pool, out, indptr, indices, order, D: tl.constexpr, BLOCK: tl.constexpr):
    """The same for requests in an order of their own, the end of each read first."""
    request = tl.load(order + tl.program_id(0))
    end = tl.load(indptr + request + 1)
    start = tl.load(indptr + request)
    sum_rows(pool, out + request * D, indices + start, end - start, D, BLOCK)


@triton.jit
def sum_searched(pool, out, indptr, indices, D: tl.constexpr, BLOCK: tl.constexpr):
    """The same, program p working for the request whose part of ``indices`` has place p in it."""
    request = 0
    while tl.load(indptr + request + 1) <= tl.program_id(0):
        request += 1
    start = tl.load(indptr + request)
    end = tl.load(indptr + request + 1)
    sum_rows(pool, out + request * D, indices + start, end - start, D, BLOCK)


@triton.jit
def sum_by_table(pool, out, rows, lengths, table, width, D: tl.constexpr, BLOCK: tl.constexpr):
    """The same for requests whose slots stand in their rows of ``table``."""
    request = tl.program_id(0)
    row = tl.load(rows + request)
    sum_rows(pool, out + request * D, table + row * width, tl.load(lengths + request), D, BLOCK)


@triton.jit
def sum_rows(pool, out, slots, length, D: tl.constexpr, BLOCK: tl.constexpr):
    at, d = tl.arange(0, BLOCK), tl.arange(0, D)
    slot = tl.load(slots + at, mask=at < length, other=0)
    rows = tl.load(pool + slot[:, None] * D + d[None, :], mask=(at < length)[:, None], other=0.0)
    tl.store(out + d, tl.sum(rows, axis=0))


@triton.jit
def write_slots(pool, loc, n, D: tl.constexpr, BLOCK: tl.constexpr):
    at, d = tl.arange(0, BLOCK), tl.arange(0, D)
    slot = tl.load(loc + at, mask=at < n, other=0)
    tl.store(pool + slot[:, None] * D + d[None, :], 1.0, mask=(at < n)[:, None])


@triton.jit
def add_to_slots(pool, loc, n, D: tl.constexpr, BLOCK: tl.constexpr):
    at, d = tl.arange(0, BLOCK), tl.arange(0, D)
    slot = tl.load(loc + at, mask=at < n, other=0)
    tl.atomic_add(pool + slot[:, None] * D + d[None, :], 1.0, mask=(at < n)[:, None])


@triton.jit
def append_to_table(table, row, width, place):
    tl.store(table + row * width + place, 9)
