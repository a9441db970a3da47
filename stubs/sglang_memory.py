"""SGLang's memory: the pools of rows and of KV, what hands out their slots, and how rows and KV come and go."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from stubs.refusal import Refused
from stubs.sglang import DTYPES, accepted, find, kv_torch_dtype, load
from stubs.world import World


def request_pool(world: World, row_width: int) -> Any:
    """The real ReqToTokenPool: ``req_to_token`` is int32 [max_running_requests + 1, row_width]."""
    cls = load("sglang.srt.mem_cache.memory_pool").ReqToTokenPool
    return cls(
        size=world.max_running_requests, max_context_len=row_width, device=world.device, enable_memory_saver=False
    )


def kv_pool(world: World, layers: int) -> Any:
    """The real MHATokenToKVPool: K and V [max_total_tokens + page_size, num_kv_heads, head_dim] per layer."""
    cls = load("sglang.srt.mem_cache.memory_pool").MHATokenToKVPool
    return cls(
        size=world.max_total_tokens,
        page_size=world.page_size,
        dtype=kv_torch_dtype(world),
        head_num=world.num_kv_heads,
        head_dim=world.head_dim,
        layer_num=layers,
        device=world.device,
        enable_memory_saver=False,
        **value_dim(world),
        **accepted(cls.__init__, enable_alt_stream=False, enable_kv_cache_copy=False),
    )


def value_dim(world: World) -> dict[str, int]:
    """What a pool is told of the width of values; up to 0.5.6 it cannot be told. Refused where it must be."""
    cls = load("sglang.srt.mem_cache.memory_pool").MHATokenToKVPool
    told = accepted(cls.__init__, v_head_dim=world.v_dim)
    if world.v_head_dim and not told:
        raise Refused("this release has no KV pool whose values differ from its keys in width")
    return told


def allocator(world: World, pool: Any) -> Any:
    """The real allocator SGLang picks for this page size."""
    module = load("sglang.srt.mem_cache.allocator")
    common = {"dtype": DTYPES[world.dtype], "device": world.device, "kvcache": pool, "need_sort": False}
    if world.page_size == 1:
        return module.TokenToKVPoolAllocator(world.max_total_tokens, **common)
    return module.PagedTokenToKVPoolAllocator(world.max_total_tokens, page_size=world.page_size, **common)


def index_translator(runner: Any) -> Any:
    """The real KVIndexTranslator over the runner's pools, or None where the release has none."""
    cls = find("sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator")
    if cls is None:
        return None
    return cls(
        req_to_token=runner.req_to_token_pool.req_to_token,
        token_to_kv_pool_allocator=runner.token_to_kv_pool_allocator,
        token_to_kv_pool=runner.token_to_kv_pool,
        page_size=runner.page_size,
        device=runner.device,
        **accepted(cls.__init__, is_draft_worker=runner.is_draft_worker),
    )


def row_extra(world: World) -> int:
    """Columns a request's row has past the context length. Source: SGLang's allocation sizing."""
    extra = 4 + world.spec_draft_tokens
    if world.is_speculative and world.page_size > 1:
        extra = max(extra, 2 * world.spec_reserve + world.page_size - 1)
    return extra


def move_kv(pool: Any, to: torch.Tensor, source: torch.Tensor) -> None:
    """Copy KV rows within a pool, by SGLang's own plain-torch road (the other is a CUDA kernel over raw pointers)."""
    if hasattr(pool, "kv_buffer"):  # latent KV, which older releases do not move in torch alone
        for buffer in pool.kv_buffer:
            buffer[to] = buffer[source]
        return
    move = find("sglang.srt.mem_cache.memory_pool:move_kv_cache_native")
    if move is not None:
        move(pool.k_buffer, pool.v_buffer, to, source)
        return
    for buffer in (*pool.k_buffer, *pool.v_buffer):  # up to 0.5.6 there is the kernel alone
        buffer[to] = buffer[source]


def take_row(pool: Any, record: Any) -> int | None:
    """A row of the ReqToTokenPool for a request, or None where all are taken."""
    if not _counts_rows(pool):
        taken = pool.alloc([record])
        return None if taken is None else int(taken[0])
    taken = pool.alloc(1, **accepted(pool.alloc, reqs=[record]))
    record.req_pool_idx = None if taken is None else taken[0]
    return record.req_pool_idx


def free_row(pool: Any, record: Any) -> None:
    """Give a request's row back to the ReqToTokenPool, and what linear state comes with it."""
    free_state = getattr(pool, "free_mamba_cache", None)
    if free_state is not None:
        free_state(record)
    pool.free(record.req_pool_idx if _counts_rows(pool) else record)


def _counts_rows(pool: Any) -> bool:
    """Up to 0.5.8 the pool is asked for a number of rows, not for requests' rows."""
    return "need_size" in inspect.signature(pool.alloc).parameters
