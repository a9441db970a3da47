"""Stand-ins for FlashMLA's dense decode: a schedule from lengths, and the attention that runs by it.

Signatures are sgl_kernel.flash_mla's (SGLang up to 0.5.22), which 0.5.23 keeps over the wheel flash_mla. The schedule is
FlashMLA's own: blocks of 64 keys dealt out evenly to the multiprocessors, each request costing five blocks more. Not
checked against the compiled kernels. Differences: float32, and any latent and rotary width are allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from stubs.kernels import flashmla_contract as contract
from stubs.kernels.attention import Rules, attend
from stubs.kernels.contract import ContractBreach, require, require_absent
from stubs.kernels.door import closed_kernel
from stubs.kernels.latent_contract import answer_dtype
from stubs.kernels.trtllm_contract import check_counts

METADATA = "get_mla_metadata"
DECODE = "flash_mla_with_kvcache"


@dataclass(slots=True)
class FlashMLASchedMeta:
    """What the wheel keeps a schedule in."""

    tile_scheduler_metadata: torch.Tensor | None = None
    num_splits: torch.Tensor | None = None


@closed_kernel
def get_mla_metadata(
    cache_seqlens: torch.Tensor,
    num_q_tokens_per_head_k: int,
    num_heads_k: int,
    num_heads_q: int | None = None,
    is_fp8_kvcache: bool = False,
    topk: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A schedule for a decode over ``cache_seqlens`` int32 [B]: int32 [parts, 8], and the splits so far, int32 [B + 1].

    ``num_q_tokens_per_head_k`` are query rows times heads of one request. Over dense KV in fp8 blocks are dealt out alike.
    Raises ContractBreach.
    """
    require_absent(METADATA, topk=topk)
    require(num_heads_k == 1, METADATA, "num_heads_k", f"is {num_heads_k}, expected 1: all heads share a row")
    lengths = check_counts(METADATA, "cache_seqlens", cache_seqlens)
    rows = num_q_tokens_per_head_k
    require(rows > 0, METADATA, "num_q_tokens_per_head_k", f"is {rows}")
    schedule, splits = contract.schedule_of(lengths, rows)
    device = cache_seqlens.device
    return torch.tensor(schedule, dtype=torch.int32, device=device), torch.tensor(
        splits, dtype=torch.int32, device=device
    )


@closed_kernel
def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    tile_scheduler_metadata: torch.Tensor | FlashMLASchedMeta,
    num_splits: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    descale_q: torch.Tensor | None = None,
    descale_k: torch.Tensor | None = None,
    is_fp8_kvcache: bool = False,
    indices: torch.Tensor | None = None,
    use_legacy: bool = True,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Absorbed attention of q [B, n, H, D], the last n positions, over rows [pages, 64, 1, D]: [B, n, H, Dv] and LSE.

    ``block_table`` int32 [B, P] is walked by its row stride; LSE is [B, H, n], natural. Of e4m3 q and rows are worth what
    ``descale_q`` and ``descale_k`` [1] times make of them, and the answer is in bfloat16. Raises ContractBreach.
    """
    is_narrow = q.dtype.itemsize == 1
    sparse = {"indices": indices, "is_fp8_kvcache": (is_fp8_kvcache and not is_narrow) or None}
    require_absent(DECODE, **sparse, **options)
    schedule, splits = _scheduled(tile_scheduler_metadata, num_splits)
    contract.check_cache(DECODE, q, k_cache, head_dim_v)
    of_q, of_k = contract.check_descales(DECODE, q, descale_q, descale_k)
    lengths = check_counts(DECODE, "cache_seqlens", cache_seqlens)
    batch, rows, heads, width = q.shape
    held = len(lengths)
    require(held == batch, DECODE, "cache_seqlens", f"has {held} entries for {batch} requests", rule="entries")
    contract.check_schedule(DECODE, schedule, splits, lengths, rows * heads)
    if causal:
        contract.check_causal(DECODE, rows, lengths)
    table = contract.check_table(DECODE, block_table, lengths, len(k_cache))
    keys = k_cache[table].flatten(1, 2)
    answer = torch.full((batch * rows, heads, head_dim_v), float("nan"))
    lse = torch.full((heads, batch * rows), float("nan"))
    rules = Rules(scale=(softmax_scale or width**-0.5) * of_q * of_k, causal=causal)
    counts, starts = [rows] * batch, list(range(0, batch * rows, rows))
    attend(q.flatten(0, 1), None, keys, keys[..., :head_dim_v], starts, counts, lengths, rules, answer, lse)
    answer = (answer * of_k).to(answer_dtype(q.dtype))
    return answer.view(batch, rows, heads, head_dim_v), lse.view(heads, batch, rows).transpose(0, 1).contiguous()


def _scheduled(
    given: torch.Tensor | FlashMLASchedMeta, num_splits: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The two tensors of a schedule, of the wheel's object or handed in."""
    schedule = given.tile_scheduler_metadata if isinstance(given, FlashMLASchedMeta) else given
    splits = given.num_splits if isinstance(given, FlashMLASchedMeta) else num_splits
    if schedule is None or splits is None:
        missing = "tile_scheduler_metadata" if schedule is None else "num_splits"
        raise ContractBreach(DECODE, missing, "is not there", rule="missing")
    return schedule, splits
