"""Guard zones round buffers: the buffers stay what they were, and what is written round them is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from stubs.guards import GUARD_BYTES, GUARD_INDEX, surround

WIDTH = GUARD_BYTES // 4


def fused_pool() -> Any:
    """K and V as the halves of one storage, as some releases lay them out, and a table of their addresses."""
    storage = torch.arange(2 * 4 * 1 * 2, dtype=torch.float32).reshape(2, 4, 1, 2)
    addresses = torch.tensor([storage[0].data_ptr(), storage[1].data_ptr()], dtype=torch.uint64)
    return SimpleNamespace(k_buffer=[storage[0]], v_buffer=[storage[1]], data_ptrs=addresses)


def test_buffers_keep_values_shape_and_stride() -> None:
    pool = fused_pool()
    surround(pool, ("k_buffer", "v_buffer"))
    assert pool.k_buffer[0].flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert pool.v_buffer[0].flatten().tolist() == [8, 9, 10, 11, 12, 13, 14, 15]
    assert (pool.k_buffer[0].shape, pool.k_buffer[0].stride()) == ((4, 1, 2), (2, 2, 1))


def test_buffers_of_one_storage_go_on_sharing_it() -> None:
    pool = fused_pool()
    guards = surround(pool, ("k_buffer", "v_buffer"))
    assert len(guards) == 1
    assert pool.v_buffer[0].data_ptr() - pool.k_buffer[0].data_ptr() == 8 * 4


def test_tables_of_addresses_follow() -> None:
    pool = fused_pool()
    surround(pool, ("k_buffer", "v_buffer"))
    assert pool.data_ptrs.tolist() == [pool.k_buffer[0].data_ptr(), pool.v_buffer[0].data_ptr()]


def test_writing_within_a_buffer_is_no_alarm() -> None:
    pool = fused_pool()
    (guard,) = surround(pool, ("k_buffer", "v_buffer"))
    pool.k_buffer[0].fill_(7)
    pool.v_buffer[0].fill_(float("nan"))
    assert guard.overwritten() == []


def test_writes_before_and_behind_are_told_once() -> None:
    pool = fused_pool()
    (guard,) = surround(pool, ("k_buffer", "v_buffer"))
    guard.memory[WIDTH - 1] = 3
    guard.memory[WIDTH + 16] = float("nan")
    assert guard.overwritten() == [-1, 16]
    assert guard.overwritten() == []


def test_a_single_tensor_of_indices_is_guarded_by_an_index_out_of_every_pool() -> None:
    rows = SimpleNamespace(req_to_token=torch.zeros(3, 5, dtype=torch.int32))
    (guard,) = surround(rows, ("req_to_token",))
    assert rows.req_to_token.shape == (3, 5)
    assert guard.memory[WIDTH + 15].item() == GUARD_INDEX
    rows.req_to_token.view(-1).as_strided((16,), (1,))[15] = 1
    assert guard.overwritten() == [15]
