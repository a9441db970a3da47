"""The contract of FlashMLA's dense decode: what its calls must satisfy, and the schedule that it runs by."""

from __future__ import annotations

import torch

from stubs.kernels import trtllm_contract
from stubs.kernels.contract import ContractBreach, require
from stubs.kernels.latent_contract import check_narrow

PAGE = 64  # tokens, also of a block of keys
CORES = 132  # multiprocessors of a Hopper, which share the blocks
ROWS_OF_A_CORE = 64  # query rows times heads that one takes
OVERHEAD_BLOCKS = 5  # what beginning a request costs, in blocks of keys
COLUMNS = 8  # of a schedule: first request and key, last request and key, first split, and three of padding


def schedule_of(lengths: list[int], rows: int) -> tuple[list[list[int]], list[int]]:
    """FlashMLA's schedule for requests of ``lengths`` keys and ``rows`` query rows times heads each: parts, splits so far.

    Source: get_mla_metadata_kernel in FlashMLA's csrc.
    """
    parts = max(CORES // -(-rows // ROWS_OF_A_CORE), 1)
    blocks = [-(-length // PAGE) for length in lengths]
    payload = -(-sum(count + OVERHEAD_BLOCKS for count in blocks) // parts) + OVERHEAD_BLOCKS
    request = block = split = 0
    splits, schedule = [0], []
    for _ in range(parts):
        begin = [request, block * PAGE]
        first_split, left = split, payload
        while request < len(lengths):
            ahead = blocks[request] - block
            if left < ahead + OVERHEAD_BLOCKS:
                if left > OVERHEAD_BLOCKS:
                    block, split = block + left - OVERHEAD_BLOCKS, split + 1
                break
            splits.append(splits[-1] + split + 1)
            left -= ahead + OVERHEAD_BLOCKS
            request, block, split = request + 1, 0, 0
        end = [request, block * PAGE] if block else [request - 1, lengths[request - 1] if request else 0]
        schedule.append([*begin, *end, first_split, 0, 0, 0])
    return schedule, splits


def check_cache(function: str, q: torch.Tensor, cache: torch.Tensor, head_dim_v: int) -> None:
    """q [B, n, heads, D] over rows [pages, 64, 1, D], of which the first ``head_dim_v`` columns are the value."""
    shape = tuple(q.shape)
    require(q.dim() == 4, function, "q", f"{shape}, expected [requests, rows, heads, head dim]", rule="shape")
    width, shape = shape[3], tuple(cache.shape)
    fits = cache.dim() == 4 and shape[2:] == (1, width)
    require(fits, function, "k_cache", f"{shape}, expected [pages, {PAGE}, 1, {width}]", rule="shape")
    require(shape[1] == PAGE, function, "k_cache", f"has pages of {shape[1]}, expected {PAGE}", rule="page")
    check_narrow(function, "q", q)
    require(cache.dtype == q.dtype, function, "k_cache", f"is {cache.dtype}, q is {q.dtype}", rule="dtype")
    for name, tensor in (("q", q), ("k_cache", cache)):
        require(
            tensor.stride(-1) == 1, function, name, f"has last stride {tensor.stride(-1)}, expected 1", rule="stride"
        )
    require(0 < head_dim_v <= width, function, "head_dim_v", f"is {head_dim_v}, expected 1..{width}")


def check_descales(
    function: str, q: torch.Tensor, descale_q: torch.Tensor | None, descale_k: torch.Tensor | None
) -> tuple[float, float]:
    """What a q and a row of KV are worth in all: float32 [1] each, there for fp8 and for nothing else; else 1."""
    is_narrow, found = q.dtype.itemsize == 1, []
    for name, descale in (("descale_q", descale_q), ("descale_k", descale_k)):
        if descale is None:
            require(not is_narrow, function, name, f"is not there, q is {q.dtype}", rule="missing")
            found.append(1.0)
            continue
        require(is_narrow, function, name, f"is there, q is {q.dtype}", rule="given")
        fits = tuple(descale.shape) == (1,) and descale.dtype == torch.float32
        require(fits, function, name, f"{tuple(descale.shape)} of {descale.dtype}, expected (1,) of torch.float32")
        found.append(float(descale))
    return found[0], found[1]


def check_schedule(function: str, schedule: torch.Tensor, splits: torch.Tensor, lengths: list[int], rows: int) -> None:
    """The schedule deals out the blocks of these lengths, for so many query rows times heads a request.

    A part ends at a block: where in it the last key stands is read from the lengths.
    """
    given = {"tile_scheduler_metadata": schedule, "num_splits": splits}
    for name, tensor in given.items():
        require(tensor.dtype == torch.int32, function, name, f"is {tensor.dtype}, expected torch.int32", rule="dtype")
        require(
            tensor.is_contiguous(), function, name, f"has strides {tensor.stride()}, expected contiguous", rule="stride"
        )
    parts, expected_splits = schedule_of(lengths, rows)
    shape, wanted = tuple(schedule.shape), (len(parts), COLUMNS)
    detail = f"{shape}, expected {wanted} for {rows} query rows times heads"
    require(shape == wanted, function, "tile_scheduler_metadata", detail, rule="shape")
    found: list[int] = splits.tolist()
    entries, batch = len(found), len(lengths)
    require(entries == batch + 1, function, "num_splits", f"has {entries} entries for {batch} requests", rule="entries")
    for request, (one, other) in enumerate(zip(found[1:], expected_splits[1:], strict=True)):
        if one != other:
            detail = f"ends at {one}, expected {other} for {lengths[request]} keys: made for other lengths"
            raise ContractBreach(function, "num_splits", detail, request)
    for part, (one_row, other_row) in enumerate(zip(schedule.tolist(), parts, strict=True)):
        if _in_blocks(one_row) != _in_blocks(other_row):
            detail = f"has {one_row[:5]} at part {part}, expected {other_row[:5]}: made for other lengths"
            raise ContractBreach(function, "tile_scheduler_metadata", detail)


def _in_blocks(part: list[int]) -> list[int]:
    first, begin, last, end, split = part[:5]
    return [first, begin // PAGE, last, -(-end // PAGE), split]


def check_causal(function: str, rows: int, lengths: list[int]) -> None:
    """The queries are the last positions. Waived for a length of at most 1, which padded rows of a graph have."""
    for request, length in enumerate(lengths):
        if rows > length > 1:
            raise ContractBreach(function, "cache_seqlens", f"{rows} queries for {length} keys", request)


def check_table(function: str, table: torch.Tensor, lengths: list[int], pages: int) -> torch.Tensor:
    """Page ids int64 [requests, most pages], as the kernel finds them: by the row stride, however wide the view is."""
    name, batch = "block_table", len(lengths)
    trtllm_contract.check_rows(function, name, table, batch)
    if batch:
        held = table.untyped_storage().nbytes() // table.element_size() - table.storage_offset()
        columns = min(max(table.stride(0), table.shape[1]), held - (batch - 1) * table.stride(0))
        table = table.as_strided((batch, columns), (table.stride(0), 1))
    return trtllm_contract.check_ids(function, name, table, lengths, pages, PAGE)
