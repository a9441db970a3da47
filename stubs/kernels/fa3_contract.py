"""The contract of sgl_kernel.flash_attn: what a call must satisfy, argument by argument."""

from __future__ import annotations

from itertools import pairwise

import torch

from stubs.kernels.attention import Rules
from stubs.kernels.contract import ContractBreach, require
from stubs.kernels.cover import may_leave_out

KVCACHE = "flash_attn_with_kvcache"
VARLEN = "flash_attn_varlen_func"


def schedule_size(batch: int) -> int:
    """Entries of a schedule for ``batch`` requests; SGLang sizes its graph buffer for it by the same formula."""
    return 1 + 4 * ((batch + 3) // 4 * 4)


def differences(cumulative: list[int]) -> list[int]:
    """Lengths from cumulative lengths."""
    return [after - before for before, after in pairwise(cumulative)]


def check_rules(function: str, rules: Rules, batch: int, heads: int, kv_heads: int) -> None:
    """Shapes of what the rules carry as tensors: sinks [heads], descales [requests, kv heads]."""
    expected = {"sinks": (heads,)} | dict.fromkeys(("q_descale", "k_descale", "v_descale"), (batch, kv_heads))
    for name, shape in expected.items():
        tensor = getattr(rules, name)
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ContractBreach(function, name, f"{tuple(tensor.shape)}, expected {shape}", rule="shape")


def check_ragged(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    qv: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
) -> tuple[list[int], list[int]]:
    """Both cumulative arrays of a packed call, checked against each other and the rows of q, k and v."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _check_packed(VARLEN, name, tensor, q.dtype)
    _check_heads(VARLEN, q, k.shape[1], k.shape[2])
    require(
        k.shape[:2] == v.shape[:2], VARLEN, "v", f"{tuple(v.shape)} does not go with k {tuple(k.shape)}", rule="shape"
    )
    if qv is not None:
        expected = (*q.shape[:2], v.shape[-1])
        require(tuple(qv.shape) == expected, VARLEN, "qv", f"{tuple(qv.shape)}, expected {expected}", rule="shape")
    cu_q = check_cumulative(VARLEN, "cu_seqlens_q", cu_seqlens_q)
    cu_k = check_cumulative(VARLEN, "cu_seqlens_k", cu_seqlens_k)
    require(
        len(cu_q) == len(cu_k),
        VARLEN,
        "cu_seqlens_k",
        f"has {len(cu_k)} entries, cu_seqlens_q {len(cu_q)}",
        rule="entries",
    )
    require(cu_q[-1] == q.shape[0], VARLEN, "cu_seqlens_q", f"ends at {cu_q[-1]}, q has {q.shape[0]} rows")
    require(cu_k[-1] == k.shape[0], VARLEN, "cu_seqlens_k", f"ends at {cu_k[-1]}, k has {k.shape[0]} rows")
    return cu_q, cu_k


def _check_packed(function: str, name: str, tensor: torch.Tensor, dtype: torch.dtype) -> None:
    require(tensor.dim() == 3, function, name, f"{tuple(tensor.shape)}, expected [rows, heads, head dim]", rule="shape")
    require(tensor.stride(-1) == 1, function, name, f"has last stride {tensor.stride(-1)}, expected 1", rule="stride")
    require(tensor.dtype == dtype, function, name, f"is {tensor.dtype}, q is {dtype}", rule="dtype")
    # SGLang says so too, of a server whose one backend is fa3 (arg_groups/overrides.py).
    require(
        dtype != torch.float8_e5m2,
        function,
        name,
        "is float8_e5m2; of fp8 FlashAttention 3 takes e4m3 alone",
        rule="dtype",
    )


def _check_heads(function: str, q: torch.Tensor, kv_heads: int, head_dim: int) -> None:
    heads, width = q.shape[1], q.shape[2]
    require(
        kv_heads > 0 and heads % kv_heads == 0,
        function,
        "q",
        f"{heads} heads is no multiple of {kv_heads}",
        rule="heads",
    )
    require(width == head_dim, function, "q", f"has head dim {width}, the keys {head_dim}", rule="head_dim")


def check_cache(q: torch.Tensor, k_cache: torch.Tensor | None, v_cache: torch.Tensor, qv: torch.Tensor | None) -> None:
    """Shapes and dtypes of q, qv and the two caches."""
    _check_packed(KVCACHE, "q", q, q.dtype)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if cache is None:
            continue
        shape = tuple(cache.shape)
        require(cache.dim() == 4, KVCACHE, name, f"{shape}, expected [pages, page, kv heads, head dim]", rule="shape")
        require(cache.stride(-1) == 1, KVCACHE, name, f"has last stride {cache.stride(-1)}, expected 1", rule="stride")
        require(cache.dtype == q.dtype, KVCACHE, name, f"is {cache.dtype}, q is {q.dtype}", rule="dtype")
    if k_cache is not None:
        same = k_cache.shape[:3] == v_cache.shape[:3]
        require(
            same,
            KVCACHE,
            "v_cache",
            f"{tuple(v_cache.shape)} does not go with k_cache {tuple(k_cache.shape)}",
            rule="shape",
        )
        _check_heads(KVCACHE, q, k_cache.shape[2], k_cache.shape[3])
    if qv is not None:
        expected = (*q.shape[:2], v_cache.shape[-1])
        require(tuple(qv.shape) == expected, KVCACHE, "qv", f"{tuple(qv.shape)}, expected {expected}", rule="shape")
        _check_packed(KVCACHE, "qv", qv, q.dtype)


def check_ints(function: str, name: str, tensor: torch.Tensor | None, dims: int) -> torch.Tensor:
    if tensor is None:
        raise ContractBreach(function, name, "is None", rule="missing")
    require(tensor.dtype == torch.int32, function, name, f"is {tensor.dtype}, expected torch.int32", rule="dtype")
    require(tensor.dim() == dims, function, name, f"{tuple(tensor.shape)}, expected {dims} dimensions", rule="shape")
    dense = tensor.shape[-1] <= 1 or tensor.stride(-1) == 1
    require(dense, function, name, f"has last stride {tensor.stride(-1)}, expected 1", rule="stride")
    return tensor


def check_cumulative(function: str, name: str, tensor: torch.Tensor | None) -> list[int]:
    """A cumulative length array as a list: int32, from 0, never falling."""
    values: list[int] = check_ints(function, name, tensor, 1).tolist()
    require(bool(values) and values[0] == 0, function, name, f"{values} does not start at 0", rule="start")
    for request, (before, after) in enumerate(pairwise(values)):
        if after < before:
            raise ContractBreach(function, name, f"falls from {before} to {after}", request, rule="falls")
    return values


def check_cover(function: str, name: str, most: int | None, counts: list[int]) -> None:
    if most is None:
        raise ContractBreach(function, name, "is None", rule="missing")
    for request, count in enumerate(counts):
        if count > most:
            raise ContractBreach(function, name, f"{most} does not cover {count} rows", request)


def check_rows(
    q: torch.Tensor,
    cache_seqlens: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor | None,
    page_table: torch.Tensor | None,
    max_seqlen_q: int | None,
) -> tuple[list[int], list[int], torch.Tensor]:
    """The batch: (cumulative query rows, lengths in tokens, page table), each checked against the others."""
    seqlens = check_ints(KVCACHE, "cache_seqlens", cache_seqlens, 1)
    cu_q = check_cumulative(KVCACHE, "cu_seqlens_q", cu_seqlens_q)
    table = check_ints(KVCACHE, "page_table", page_table, 2)
    batch = seqlens.shape[0]
    require(
        len(cu_q) == batch + 1, KVCACHE, "cu_seqlens_q", f"has {len(cu_q)} entries for {batch} requests", rule="entries"
    )
    require(
        table.shape[0] == batch,
        KVCACHE,
        "page_table",
        f"has {table.shape[0]} rows for {batch} requests",
        rule="entries",
    )
    require(cu_q[-1] <= q.shape[0], KVCACHE, "cu_seqlens_q", f"ends at {cu_q[-1]}, q has {q.shape[0]} rows")
    if not may_leave_out(max_seqlen_q):
        check_cover(KVCACHE, "max_seqlen_q", max_seqlen_q, differences(cu_q))
    lengths: list[int] = seqlens.tolist()
    for request, length in enumerate(lengths):
        if length < 0:
            raise ContractBreach(KVCACHE, "cache_seqlens", f"is {length}", request, rule="negative")
    return cu_q, lengths, table


def check_cumulative_keys(cu_seqlens_k_new: torch.Tensor, lengths: list[int]) -> None:
    """An indptr of the batch. The kernel reads it along with new k alone, and there is none: its values are not compared.

    SGLang passes the keys' cumulative lengths, made up ones at times: when it captures, and for drafts on pages of
    their own.
    """
    counts = differences(check_cumulative(KVCACHE, "cu_seqlens_k_new", cu_seqlens_k_new))
    require(
        len(counts) == len(lengths),
        KVCACHE,
        "cu_seqlens_k_new",
        f"has {len(counts) + 1} entries for {len(lengths)} requests",
        rule="entries",
    )


def check_schedule(schedule: torch.Tensor | None, batch: int) -> None:
    if schedule is None:
        return
    check_ints(KVCACHE, "scheduler_metadata", schedule, 1)
    size, expected = schedule.shape[0], schedule_size(batch)
    require(
        size == expected,
        KVCACHE,
        "scheduler_metadata",
        f"has {size} entries; {batch} requests need {expected}",
        rule="entries",
    )


def check_causal(function: str, argument: str, causal: bool, counts: list[int], lengths: list[int]) -> None:
    """With a causal mask the queries are the last positions, so there are no more of them than keys.

    Waived for a length of at most 1: that is what SGLang fills the padded rows of a captured graph with.
    """
    if not causal:
        return
    for request, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        if count > length > 1:
            raise ContractBreach(function, argument, f"{count} queries for {length} keys", request)


def check_pages(
    table: torch.Tensor, lengths: list[int], counts: list[int], pages: int, page: int, left: int
) -> torch.Tensor:
    """Page ids int64 [requests, most pages], those that no query reads set to 0; the others are checked."""
    needed = [-(-length // page) for length in lengths]
    width = max(needed, default=0)
    for request, need in enumerate(needed):
        if need > table.shape[1]:
            detail = f"has {table.shape[1]} columns; {lengths[request]} tokens in pages of {page} need {need}"
            raise ContractBreach(KVCACHE, "page_table", detail, request)
    ids = table[:, :width].long()
    first = [
        max(0, length - count - left) // page if left >= 0 and count else 0
        for length, count in zip(lengths, counts, strict=True)
    ]
    column = torch.arange(width)[None]
    read = (column >= torch.tensor(first)[:, None]) & (column < torch.tensor(needed)[:, None])
    bad = read & ((ids < 0) | (ids >= pages)) & (torch.tensor(counts)[:, None] > 0)
    if bool(bad.any()):
        request, place = (int(value) for value in bad.nonzero()[0])
        detail = f"page id {int(ids[request, place])} at column {place}, expected 0..{pages - 1}"
        raise ContractBreach(KVCACHE, "page_table", detail, request, rule="id")
    return torch.where(read & ~((ids < 0) | (ids >= pages)), ids, 0)


def check_output(function: str, q: torch.Tensor, width: int, out: torch.Tensor | None) -> torch.Tensor:
    """``out``, checked, or a new tensor of NaN: what is never written must show."""
    shape = (q.shape[0], q.shape[1], width)
    dtype = torch.bfloat16 if q.dtype.itemsize == 1 else q.dtype  # fp8 in, bfloat16 out
    if out is None:
        return torch.full(shape, float("nan"), dtype=dtype)
    require(tuple(out.shape) == shape, function, "out", f"{tuple(out.shape)}, expected {shape}", rule="shape")
    require(out.dtype == dtype, function, "out", f"is {out.dtype}, expected {dtype}", rule="dtype")
    require(out.stride(-1) == 1, function, "out", f"has last stride {out.stride(-1)}, expected 1", rule="stride")
    return out
