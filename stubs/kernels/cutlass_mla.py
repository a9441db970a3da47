"""Stand-ins for sgl_kernel's CUTLASS decode of latent attention, which SGLang has up to 0.5.19.

The contract is read from sgl_kernel's Python wrapper and from SGLang's calls; it was not checked against the kernel.
Differences: float32, and any latent and rotary width are allowed.
"""

from __future__ import annotations

import torch

from stubs.kernels import trtllm_contract
from stubs.kernels.attention import Rules, attend
from stubs.kernels.contract import require
from stubs.kernels.door import closed_kernel
from stubs.kernels.latent_contract import check_query, check_rows

DECODE = "cutlass_mla_decode"
WORKSPACE = "cutlass_mla_get_workspace_size"
HEADS_MAX = 128
PAGE = 128
_SPLIT_BYTES = 4  # of a float32 that a split of a head keeps beside its answer


def cutlass_mla_get_workspace_size(
    max_seq_len: int, num_batches: int, sm_count: int = 0, num_kv_splits: int = 1
) -> int:
    """Bytes to work in. Ours is no formula of CUTLASS's: it rises with the batch, so that one too small is noticed."""
    require(max_seq_len > 0, WORKSPACE, "max_seq_len", f"is {max_seq_len}")
    require(num_batches > 0, WORKSPACE, "num_batches", f"is {num_batches}")
    return num_batches * HEADS_MAX * _SPLIT_BYTES * max(num_kv_splits, 1)


@closed_kernel
def cutlass_mla_decode(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv_c_and_k_pe_cache: torch.Tensor,
    seq_lens: torch.Tensor,
    page_table: torch.Tensor,
    workspace: torch.Tensor,
    sm_scale: float,
    num_kv_splits: int = 1,
) -> torch.Tensor:
    """Absorbed attention of one row a request: q_nope [B, H, latent], q_pe [B, H, rotary], over rows [pages, page, both].

    ``seq_lens`` int32 [B], ``page_table`` int32 [B, P]. The answer is [B, H, latent]. Raises ContractBreach.
    """
    cache = kv_c_and_k_pe_cache
    _check_queries(q_nope, q_pe)
    (batch, heads, latent), rotary = q_nope.shape, q_pe.shape[-1]
    page = _check_cache(cache, latent + rotary, q_nope.dtype)
    lengths = trtllm_contract.check_lengths(DECODE, seq_lens, page_table.shape[-1] * page, "page_table")
    held = len(lengths)
    require(held == batch, DECODE, "seq_lens", f"has {held} entries for {batch} requests", rule="entries")
    columns = page_table.shape[-1]
    whole = columns > 0 and columns % (PAGE // page) == 0
    require(
        whole, DECODE, "page_table", f"has {columns} columns, expected a multiple of {PAGE // page}", rule="columns"
    )
    table = trtllm_contract.check_table(DECODE, page_table, lengths, [1] * batch, len(cache), page, -1)
    trtllm_contract.check_workspace(DECODE, workspace)
    needed, room = cutlass_mla_get_workspace_size(columns * page, batch, num_kv_splits=num_kv_splits), workspace.numel()
    require(room >= needed, DECODE, "workspace", f"has {room} bytes, {batch} requests take {needed}")
    keys = cache[table].flatten(1, 2)[:, :, None]
    answer = torch.full((batch, heads, latent), float("nan"), dtype=q_nope.dtype)
    lse, rows = torch.empty(heads, batch), list(range(batch))
    q = torch.cat([q_nope, q_pe], -1)
    attend(q, None, keys, keys[..., :latent], rows, [1] * batch, lengths, Rules(scale=sm_scale), answer, lse)
    return answer


def _check_queries(q_nope: torch.Tensor, q_pe: torch.Tensor) -> None:
    require(
        q_nope.dim() == 3, DECODE, "q_nope", f"{tuple(q_nope.shape)}, expected [requests, heads, latent]", rule="shape"
    )
    batch, heads, latent = q_nope.shape
    require(heads <= HEADS_MAX, DECODE, "q_nope", f"has {heads} heads, expected at most {HEADS_MAX}", rule="heads")
    check_query(DECODE, "q_nope", q_nope, (heads, latent))
    check_query(DECODE, "q_pe", q_pe, (heads, q_pe.shape[-1]), q_nope.dtype)
    given = q_pe.shape[0]
    require(given == batch, DECODE, "q_pe", f"has {given} rows, q_nope {batch}")


def _check_cache(cache: torch.Tensor, width: int, dtype: torch.dtype) -> int:
    """Rows [pages, page, width]; returns the page's tokens."""
    name, shape = "kv_c_and_k_pe_cache", tuple(cache.shape)
    require(cache.dim() == 3, DECODE, name, f"{shape}, expected [pages, page, {width}]", rule="shape")
    page = shape[1]
    require(PAGE % page == 0, DECODE, name, f"has pages of {page}, no divisor of {PAGE}", rule="page")
    check_rows(DECODE, name, cache, page, width, dtype)
    return page
