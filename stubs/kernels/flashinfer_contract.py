"""The contract of flashinfer's wrappers: what their arguments must satisfy, at plan and at run."""

from __future__ import annotations

from itertools import pairwise

import torch

from stubs.kernels.contract import ContractBreach, note, require
from stubs.kernels.door import replays

MERGE_THREADS_MAX = 1024  # merge_state runs one block of (head dim / vector) x heads threads a token


def lengths_of(cumulative: list[int]) -> list[int]:
    """Lengths from cumulative lengths."""
    return [after - before for before, after in pairwise(cumulative)]


def check_indptr(function: str, name: str, tensor: torch.Tensor, batch: int | None = None) -> list[int]:
    """A cumulative array as a list: int32 [batch + 1], from 0, never falling."""
    require(tensor.dtype == torch.int32, function, name, f"is {tensor.dtype}, expected torch.int32", rule="dtype")
    require(tensor.dim() == 1, function, name, f"{tuple(tensor.shape)}, expected one dimension", rule="shape")
    values: list[int] = tensor.tolist()
    require(bool(values) and values[0] == 0, function, name, f"{values} does not start at 0", rule="start")
    for request, (before, after) in enumerate(pairwise(values)):
        if after < before:
            raise ContractBreach(function, name, f"falls from {before} to {after}", request, rule="falls")
    entries = len(values)
    require(
        batch is None or entries == batch + 1,
        function,
        name,
        f"has {entries} entries for {batch} requests",
        rule="entries",
    )
    return values


def check_pages(
    function: str,
    names: tuple[str, str, str],
    indptr: torch.Tensor,
    indices: torch.Tensor,
    last: torch.Tensor,
    page: int,
) -> list[int]:
    """The three arrays of a paged batch, told apart by ``names``; returns each request's number of keys."""
    require(page > 0, function, "page_size", f"is {page}")
    last_values = check_ints(function, names[2], last)
    cumulative = check_indptr(function, names[0], indptr, len(last_values))
    require(indices.dtype == torch.int32, function, names[1], f"is {indices.dtype}, expected torch.int32", rule="dtype")
    require(indices.dim() == 1, function, names[1], f"{tuple(indices.shape)}, expected one dimension", rule="shape")
    held = indices.shape[0]
    require(held >= cumulative[-1], function, names[1], f"has {held} entries, {names[0]} ends at {cumulative[-1]}")
    counts = lengths_of(cumulative)
    for request, (pages, tokens) in enumerate(zip(counts, last_values, strict=True)):
        if pages and not 1 <= tokens <= page:
            raise ContractBreach(function, names[2], f"is {tokens}, expected 1..{page}", request, rule="range")
    return [(pages - 1) * page + tokens if pages else 0 for pages, tokens in zip(counts, last_values, strict=True)]


def check_ints(function: str, name: str, tensor: torch.Tensor) -> list[int]:
    """An int32 array of one dimension as a list."""
    require(tensor.dtype == torch.int32, function, name, f"is {tensor.dtype}, expected torch.int32", rule="dtype")
    require(tensor.dim() == 1, function, name, f"{tuple(tensor.shape)}, expected one dimension", rule="shape")
    values: list[int] = tensor.tolist()
    return values


def check_heads(function: str, heads: int, kv_heads: int) -> None:
    fits = kv_heads > 0 and heads > 0 and heads % kv_heads == 0
    require(fits, function, "num_qo_heads", f"{heads} is no multiple of num_kv_heads {kv_heads}")


def check_mask(function: str, mask: torch.Tensor, queries: list[int], keys: list[int]) -> None:
    """A flat mask of a byte a cell: every request's queries times its keys, one request after the other.

    It may be longer: SGLang hands in buffers sized by an upper bound.
    """
    require(
        mask.dtype in (torch.bool, torch.uint8),
        function,
        "custom_mask",
        f"is {mask.dtype}, expected bool or uint8",
        rule="dtype",
    )
    cells, needed = mask.numel(), 0
    for request, (n, length) in enumerate(zip(queries, keys, strict=True)):
        needed += n * length
        if needed > cells:
            detail = f"has {cells} cells; {n} queries over {length} keys end at {needed}"
            raise ContractBreach(function, "custom_mask", detail, request)


def check_query(
    function: str, q: torch.Tensor, rows: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    """q [rows, heads, head dim] as planned; fewer heads than planned are allowed, more are written past the plan."""
    require(q.dim() == 3, function, "q", f"{tuple(q.shape)}, expected [rows, heads, head dim]", rule="shape")
    given, width = q.shape[1], q.shape[2]
    # A graph's launch has the rows that it was captured with: what was planned since may leave some out.
    fits = q.shape[0] >= rows if replays() else q.shape[0] == rows
    require(fits, function, "q", f"has {q.shape[0]} rows, qo_indptr ends at {rows}")
    require(given <= heads, function, "q", f"has {given} heads, planned for {heads}", rule="heads")
    require(given % kv_heads == 0, function, "q", f"{given} heads is no multiple of {kv_heads}", rule="heads")
    require(width == head_dim, function, "q", f"has head dim {width}, planned for {head_dim}", rule="head_dim")
    require(q.dtype == dtype, function, "q", f"is {q.dtype}, planned for {dtype}", rule="dtype")
    require(q.stride(-1) == 1, function, "q", f"has last stride {q.stride(-1)}, expected 1", rule="stride")


def check_keys(function: str, name: str, tensor: torch.Tensor, trailing: tuple[int, ...], dtype: torch.dtype) -> None:
    """A cache or packed keys: the dimensions behind the first as planned."""
    shape = tuple(tensor.shape)
    require(
        shape[1:] == trailing,
        function,
        name,
        f"{shape}, planned for (any, {', '.join(map(str, trailing))})",
        rule="shape",
    )
    require(tensor.dtype == dtype, function, name, f"is {tensor.dtype}, planned for {dtype}", rule="dtype")
    require(tensor.stride(-1) == 1, function, name, f"has last stride {tensor.stride(-1)}, expected 1", rule="stride")


def check_ids(function: str, name: str, indices: torch.Tensor, cumulative: list[int], pages: int) -> None:
    """Every page id that a request's part of ``indices`` names is one of the cache's ``pages``."""
    used = indices[: cumulative[-1]]
    bad = ((used < 0) | (used >= pages)).nonzero().flatten()
    if bad.numel():
        place = int(bad[0])
        request = next(row for row, end in enumerate(cumulative[1:]) if place < end)
        detail = f"page id {int(used[place])} at {place - cumulative[request]}, expected 0..{pages - 1}"
        raise ContractBreach(function, name, detail, request, rule="id")


def check_same(function: str, name: str, host: list[int], device: torch.Tensor) -> None:
    """What was planned on the host is what the kernel reads on the device."""
    found: list[int] = device.tolist()
    if found == host:
        return
    require(
        len(found) == len(host),
        function,
        name,
        f"has {len(found)} entries on the device, {len(host)} were planned",
        rule="entries",
    )
    place = next(at for at, (one, other) in enumerate(zip(host, found, strict=True)) if one != other)
    detail = f"is {found[place]} at {place} on the device, {host[place]} was planned"
    raise ContractBreach(function, name, detail, max(0, place - 1))


def check_softcap(function: str, given: float, planned: float) -> None:
    """The kernel is compiled at plan, with a soft cap or without: one that only run names would not be applied. Noted."""
    if (given > 0) == (planned > 0):
        return
    detail = (
        f"is {given:g}, planned was {planned:g}: the planned kernel {'has no' if given > 0 else 'divides by the'} cap"
    )
    note(function, "logits_soft_cap", detail)


def check_window(function: str, window: int, free: torch.Tensor, limited: torch.Tensor) -> None:
    """A kernel planned without a window applies none to single keys: noted where one given to run alone would hide some.

    From 0.6.8 to 0.7.2 the paged FA2 kernel leaves out the keys that lie before the window of a tile's first query, window
    planned or not, and no others (attention/prefill.cuh, kv_start_idx); which these are goes by the tile's size.

    ``free`` and ``limited`` are bool [requests, queries, keys]: what is seen without it and with it.
    """
    lost = (free & ~limited).nonzero()
    if lost.numel():
        request, query, key = (int(value) for value in lost[0])
        detail = f"is {window} but was not planned: the planned kernel lets query {query} see key {key}"
        note(function, "window_left", detail, request)


def check_merge(v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor) -> None:
    """Two outputs [T, H, D] and their LSE [T, H], dense, in one launchable block a token."""
    function = "merge_state"
    require(v_a.dim() == 3, function, "v_a", f"{tuple(v_a.shape)}, expected [tokens, heads, head dim]", rule="shape")
    shapes = {"v_a": v_a.shape, "s_a": v_a.shape[:2], "v_b": v_a.shape, "s_b": v_a.shape[:2]}
    for (name, shape), tensor in zip(shapes.items(), (v_a, s_a, v_b, s_b), strict=True):
        require(tensor.shape == shape, function, name, f"{tuple(tensor.shape)}, expected {tuple(shape)}", rule="shape")
        require(
            tensor.is_contiguous(), function, name, f"has strides {tensor.stride()}, expected contiguous", rule="stride"
        )
    require(v_b.dtype == v_a.dtype, function, "v_b", f"is {v_b.dtype}, v_a is {v_a.dtype}", rule="dtype")
    heads, width = v_a.shape[1:]
    threads = heads * (width // max(PACK_BYTES // v_a.element_size(), width // WARP))
    fits = threads <= MERGE_THREADS_MAX
    require(fits, function, "v_a", f"{heads} heads of {width} need {threads} threads, at most {MERGE_THREADS_MAX}")


PACK_BYTES = 16  # of a head that one thread of merge_state moves, or 1/32 of the head if that is more
WARP = 32
