"""The contract of flashinfer's TensorRT-LLM attention kernels: what a call must satisfy, argument by argument."""

from __future__ import annotations

from itertools import pairwise

import torch

from stubs.kernels.contract import ContractBreach, require
from stubs.kernels.cover import may_leave_out
from stubs.kernels.flashinfer_contract import check_indptr, check_ints

SM_COUNT = 132  # of a Hopper; sizes the counters alone
_COUNTER_BYTES = 4
_COUNTERS_ALIGNED = 8


def counter_bytes(batch: int, heads: int, sm_count: int) -> int:
    """Bytes of the counters that thread blocks of one request meet at. The formula is flashinfer's."""
    counters = max(batch * heads, sm_count)
    return -(-counters // _COUNTERS_ALIGNED) * _COUNTERS_ALIGNED * _COUNTER_BYTES


def check_cache(function: str, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
    """q [rows, heads, D] and caches [pages, kv heads, page, D]; strided views are allowed but in the last dimension."""
    require(q.dim() == 3, function, "query", f"{tuple(q.shape)}, expected [rows, heads, head dim]", rule="shape")
    require(q.stride(-1) == 1, function, "query", f"has last stride {q.stride(-1)}, expected 1", rule="stride")
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        shape = tuple(cache.shape)
        require(cache.dim() == 4, function, name, f"{shape}, expected [pages, kv heads, page, head dim]", rule="shape")
        require(cache.stride(-1) == 1, function, name, f"has last stride {cache.stride(-1)}, expected 1", rule="stride")
    shapes = tuple(k_cache.shape), tuple(v_cache.shape)
    require(
        shapes[0][:3] == shapes[1][:3],
        function,
        "v_cache",
        f"{shapes[1]} does not go with k_cache {shapes[0]}",
        rule="shape",
    )
    require(
        k_cache.dtype == v_cache.dtype,
        function,
        "v_cache",
        f"is {v_cache.dtype}, k_cache is {k_cache.dtype}",
        rule="dtype",
    )
    same = k_cache.dtype == q.dtype or k_cache.dtype.itemsize == 1
    require(same, function, "k_cache", f"is {k_cache.dtype}, query is {q.dtype}", rule="dtype")
    heads, kv_heads = q.shape[1], k_cache.shape[1]
    require(heads % kv_heads == 0, function, "query", f"{heads} heads is no multiple of {kv_heads}", rule="heads")
    width, keys = q.shape[2], k_cache.shape[3]
    require(width == keys, function, "query", f"has head dim {width}, the keys {keys}", rule="head_dim")


def check_lengths(function: str, seq_lens: torch.Tensor, most: int, argument: str) -> list[int]:
    """Keys of each request, int32 [B], none longer than ``most``, which is called ``argument``."""
    lengths = check_counts(function, "seq_lens", seq_lens)
    for request, length in enumerate(lengths):
        if length > most:
            raise ContractBreach(function, argument, f"{most} does not cover {length} keys", request)
    return lengths


def check_counts(function: str, name: str, tensor: torch.Tensor) -> list[int]:
    """A dense int32 array of one dimension, nowhere negative, as a list."""
    counts = check_ints(function, name, tensor)
    require(
        tensor.is_contiguous(), function, name, f"has strides {tensor.stride()}, expected contiguous", rule="stride"
    )
    for request, count in enumerate(counts):
        if count < 0:
            raise ContractBreach(function, name, f"is {count}", request, rule="negative")
    return counts


def check_workspace(function: str, workspace: torch.Tensor) -> None:
    bytes_ = workspace.dtype in (torch.uint8, torch.int8)
    require(bytes_, function, "workspace_buffer", f"is {workspace.dtype}, expected uint8 or int8", rule="dtype")
    require(workspace.numel() > 0, function, "workspace_buffer", "is empty")


def check_counters(function: str, counters: torch.Tensor | None, batch: int, heads: int) -> None:
    """Room for the batch's counters, all zero: the kernel leaves them so, and starts from there."""
    if counters is None:
        return
    name, size, needed = "multi_ctas_kv_counter_buffer", counters.numel(), counter_bytes(batch, heads, SM_COUNT)
    size *= counters.element_size()
    require(size >= needed, function, name, f"has {size} bytes, {batch} requests of {heads} heads take {needed}")
    require(not bool(counters.any()), function, name, "is not zero on entry", rule="content")


def check_table(
    function: str, table: torch.Tensor, lengths: list[int], counts: list[int], pages: int, page: int, window_left: int
) -> torch.Tensor:
    """Page ids int64 [requests, most pages], those that no query reads set to 0; the others are checked."""
    name = "block_tables"
    check_rows(function, name, table, len(lengths))
    first = [
        max(0, length - count - window_left) // page if window_left >= 0 and count else 0
        for length, count in zip(lengths, counts, strict=True)
    ]
    read_from = [start if count else length for start, count, length in zip(first, counts, lengths, strict=True)]
    return check_ids(function, name, table, lengths, pages, page, read_from)


def check_rows(function: str, name: str, table: torch.Tensor, batch: int) -> None:
    """A table of page ids: int32 [batch, pages], a request's ids side by side."""
    require(table.dtype == torch.int32, function, name, f"is {table.dtype}, expected torch.int32", rule="dtype")
    shape = tuple(table.shape)
    require(table.dim() == 2 and shape[0] == batch, function, name, f"{shape}, expected [{batch}, pages]", rule="shape")
    dense = shape[1] <= 1 or table.stride(-1) == 1
    require(dense, function, name, f"has last stride {table.stride(-1)}, expected 1", rule="stride")


def check_ids(
    function: str,
    name: str,
    table: torch.Tensor,
    lengths: list[int],
    pages: int,
    page: int,
    first: list[int] | None = None,
) -> torch.Tensor:
    """The table is as wide as the lengths need, and names pages there are from the ``first`` column read on."""
    needed = [-(-length // page) for length in lengths]
    for request, need in enumerate(needed):
        if need > table.shape[1]:
            detail = f"has {table.shape[1]} columns; {lengths[request]} keys in pages of {page} need {need}"
            raise ContractBreach(function, name, detail, request)
    ids = table[:, : max(needed, default=0)].long()
    column = torch.arange(ids.shape[1])[None]
    read = (column >= torch.tensor(first or [0] * len(lengths))[:, None]) & (column < torch.tensor(needed)[:, None])
    wrong = (ids < 0) | (ids >= pages)
    if bool((read & wrong).any()):
        request, place = (int(value) for value in (read & wrong).nonzero()[0])
        detail = f"page id {int(ids[request, place])} at column {place}, expected 0..{pages - 1}"
        raise ContractBreach(function, name, detail, request, rule="id")
    return torch.where(read, ids, 0)


def check_causal(function: str, counts: list[int], lengths: list[int]) -> None:
    """The queries are the last positions, so there are no more of them than keys.

    Waived for a length of at most 1: that is what SGLang fills the padded rows of a captured graph with.
    """
    for request, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        if count > length > 1:
            raise ContractBreach(function, "seq_lens", f"{count} queries for {length} keys", request)


def check_queries(
    function: str, q: torch.Tensor, cum_seq_lens_q: torch.Tensor, batch: int, max_q_len: int | None
) -> list[int]:
    """Cumulative query rows int32 [B + 1] of a batch of uneven requests; q may have rows behind the last."""
    rows = check_indptr(function, "cum_seq_lens_q", cum_seq_lens_q, batch)
    held = q.shape[0]
    require(rows[-1] <= held, function, "cum_seq_lens_q", f"ends at {rows[-1]}, query has {held} rows")
    for request, (before, after) in enumerate(pairwise(rows)):
        if max_q_len is None or after - before > max_q_len and not may_leave_out(max_q_len):
            detail = f"{max_q_len} does not cover {after - before} rows"
            raise ContractBreach(function, "max_q_len", detail, request)
    return rows


def check_cumulative_keys(function: str, cum_seq_lens_kv: torch.Tensor, lengths: list[int]) -> None:
    """The cumulative key lengths int32 [B + 1] say what ``seq_lens`` says."""
    keys = check_indptr(function, "cum_seq_lens_kv", cum_seq_lens_kv, len(lengths))
    for request, ((before, after), length) in enumerate(zip(pairwise(keys), lengths, strict=True)):
        if after - before != length:
            detail = f"says {after - before} keys, seq_lens {length}"
            raise ContractBreach(function, "cum_seq_lens_kv", detail, request)


def check_sinks(function: str, sinks: torch.Tensor | list[torch.Tensor] | None, heads: int) -> torch.Tensor | None:
    """One float32 logit a head, as a tensor or as the only one of a list."""
    if sinks is None:
        return None
    sink = sinks if isinstance(sinks, torch.Tensor) else sinks[0]
    fits = tuple(sink.shape) == (heads,) and sink.dtype == torch.float32
    require(fits, function, "sinks", f"{tuple(sink.shape)} of {sink.dtype}, expected ({heads},) of torch.float32")
    return sink


def check_output(
    function: str, q: torch.Tensor, width: int, out: torch.Tensor | None, out_dtype: torch.dtype | None
) -> torch.Tensor:
    """``out``, checked, or a new tensor of NaN: what is never written must show."""
    shape, dtype = (*q.shape[:2], width), out_dtype or (q.dtype if out is None else out.dtype)
    if out is None:
        return torch.full(shape, float("nan"), dtype=dtype, device=q.device)
    require(tuple(out.shape) == shape, function, "out", f"{tuple(out.shape)}, expected {shape}", rule="shape")
    require(out.dtype == dtype, function, "out", f"is {out.dtype}, expected {dtype}", rule="dtype")
    return out
