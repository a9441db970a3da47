"""The contract of flashinfer's TensorRT-LLM kernels for latent attention, beside what they share with the others."""

from __future__ import annotations

import torch

from stubs.kernels.contract import ContractBreach, require
from stubs.kernels.latent_contract import check_narrow, check_rows

PAGE_SIZES = (32, 64)
BLOCK_TOKENS = 128  # of the table that one block of threads looks at


def check_cache(function: str, query: torch.Tensor, cache: torch.Tensor, width: int) -> torch.Tensor:
    """``query`` [B, n, heads, width] over ``cache`` [pages, page, width], with a dimension of 1 behind the pages or not.

    Both are of one dtype: e4m3 where KV is.
    """
    shape = tuple(query.shape)
    check_narrow(function, "query", query)
    fits = query.dim() == 4 and shape[3] == width
    require(fits, function, "query", f"{shape}, expected [requests, rows, heads, {width}]", rule="shape")
    require(query.stride(-1) == 1, function, "query", f"has last stride {query.stride(-1)}, expected 1", rule="stride")
    if cache.dim() == 4:
        require(
            cache.shape[1] == 1,
            function,
            "kv_cache",
            f"{tuple(cache.shape)}, expected [pages, 1, page, {width}]",
            rule="shape",
        )
        cache = cache[:, 0]
    shape = tuple(cache.shape)
    require(cache.dim() == 3, function, "kv_cache", f"{shape}, expected [pages, page, {width}]", rule="shape")
    page = shape[1]
    require(page in PAGE_SIZES, function, "kv_cache", f"has pages of {page}, expected 32 or 64", rule="page")
    check_rows(function, "kv_cache", cache, page, width, query.dtype)
    return cache


def check_columns(function: str, table: torch.Tensor, page: int) -> None:
    """Whole blocks of the table alone."""
    columns, block = table.shape[-1], BLOCK_TOKENS // page
    require(
        columns % block == 0,
        function,
        "block_tables",
        f"has {columns} columns, expected a multiple of {block}: {BLOCK_TOKENS} tokens in pages of {page}",
        rule="columns",
    )


def check_ragged_lengths(function: str, seq_lens: torch.Tensor, lengths: list[int]) -> None:
    """``seq_lens`` says what the cumulative array says."""
    given: list[int] = seq_lens.tolist()
    entries, batch = len(given), len(lengths)
    require(entries == batch, function, "seq_lens", f"has {entries} entries for {batch} requests", rule="entries")
    for request, (one, other) in enumerate(zip(given, lengths, strict=True)):
        if one != other:
            raise ContractBreach(function, "seq_lens", f"is {one}, cum_seq_lens_kv says {other}", request, rule="sum")


def check_longest(function: str, argument: str, most: int, lengths: list[int]) -> None:
    """A grid sized by ``most`` reaches every row."""
    for request, length in enumerate(lengths):
        if length > most:
            raise ContractBreach(function, argument, f"{most} does not cover {length} rows", request)


def check_packed(
    function: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, queries: int, keys: int
) -> None:
    """``query`` [queries, heads, D], ``key`` [keys, heads, D] and ``value`` [keys, heads, Dv], a head each, of one dtype."""
    shape = tuple(query.shape)
    check_narrow(function, "query", query)
    require(query.dim() == 3, function, "query", f"{shape}, expected [rows, heads, head dim]", rule="shape")
    heads, width = shape[1:]
    for name, tensor, rows in (("query", query, queries), ("key", key, keys), ("value", value, keys)):
        shape = tuple(tensor.shape)
        fits = tensor.dim() == 3 and shape[1] == heads and (name == "value" or shape[2] == width)
        expected = "its width" if name == "value" else width
        require(fits, function, name, f"{shape}, expected [rows, {heads}, {expected}]", rule="shape")
        require(shape[0] == rows, function, name, f"has {shape[0]} rows, its cumulative lengths end at {rows}")
        require(
            tensor.stride(-1) == 1, function, name, f"has last stride {tensor.stride(-1)}, expected 1", rule="stride"
        )
        require(tensor.dtype == query.dtype, function, name, f"is {tensor.dtype}, query is {query.dtype}", rule="dtype")


def check_wide(function: str, out: torch.Tensor | None) -> None:
    """An answer to queries of fp8 is no fp8."""
    narrow = out is not None and out.dtype.itemsize == 1
    require(not narrow, function, "out", "is of fp8, which the kernel does not write", rule="dtype")
