"""Stand-in for sgl_kernel.flash_attn (FlashAttention 3): refuses a call outside the contract, then answers in plain torch.

Signatures, positional order included, are those that SGLang 0.5.11 to 0.5.23 call (their flash_attention_v3.py):
0.5.11 to 0.5.13 pass everything up to ``sinks`` by position, later ones ``sm_margin`` and what follows by name, with
``only_qv`` added. The contract is read from SGLang's call sites and from FlashAttention 3's published interface;
it was not checked against the compiled kernel. Differences: float32 inputs are allowed, which the kernel refuses.
"""

from __future__ import annotations

import torch

from stubs.kernels import fa3_contract as contract
from stubs.kernels.attention import Rules, attend
from stubs.kernels.contract import ContractBreach, require, require_absent
from stubs.kernels.cover import left_out
from stubs.kernels.door import closed_kernel
from stubs.kernels.fa3_contract import KVCACHE, VARLEN

Result = torch.Tensor | tuple[torch.Tensor, torch.Tensor]

SCHEDULER = "get_scheduler_metadata"


@closed_kernel
def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor | None,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    qv: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    page_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int | None = None,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: torch.Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
    sinks: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    *,
    only_qv: bool = False,
) -> Result:
    """Attention of q [T, H, D] over a paged cache [pages, page, kv heads, D]; returns [T, H, Dv], or that and LSE [H, T].

    ``page_table`` int32 [B, P], ``cache_seqlens`` int32 [B] in tokens, ``cu_seqlens_q`` int32 [B + 1]. LSE is in
    natural log, with the sink in it. A query without a key gives 0 and LSE -inf. Rows that ``cu_seqlens_q`` does not
    cover keep what ``out`` held; without ``out`` they are NaN, since the kernel leaves them unwritten.
    Raises ContractBreach, and StandInGap for what SGLang does not use.
    """
    require_absent(
        KVCACHE,
        k=k,
        v=v,
        rotary_cos=rotary_cos,
        rotary_sin=rotary_sin,
        cache_batch_idx=cache_batch_idx,
        cache_leftpad=cache_leftpad,
        rotary_seqlens=rotary_seqlens,
    )
    require(not only_qv or qv is not None, KVCACHE, "qv", "is None although only_qv is set", rule="missing")
    require(only_qv or k_cache is not None, KVCACHE, "k_cache", "is None although only_qv is not set", rule="missing")
    contract.check_cache(q, None if only_qv else k_cache, v_cache, qv)
    cu_q, lengths, table = contract.check_rows(q, cache_seqlens, cu_seqlens_q, page_table, max_seqlen_q)
    if cu_seqlens_k_new is not None:
        contract.check_cumulative_keys(cu_seqlens_k_new, lengths)
    if scheduler_metadata is not None:
        contract.check_schedule(scheduler_metadata, len(lengths))
    counts = contract.differences(cu_q)
    rules = Rules(
        scale=float(softmax_scale or _width(q, qv) ** -0.5),
        causal=bool(causal),
        left=_side(window_size[0]),
        right=_side(window_size[1]),
        chunk=attention_chunk or 0,
        softcap=float(softcap),
        sinks=sinks,
        q_descale=q_descale,
        k_descale=k_descale,
        v_descale=v_descale,
    )
    contract.check_rules(KVCACHE, rules, len(lengths), q.shape[1], v_cache.shape[2])
    contract.check_causal(KVCACHE, "cache_seqlens", rules.causal, counts, lengths)
    pages = contract.check_pages(table, lengths, counts, v_cache.shape[0], v_cache.shape[1], rules.left)
    keys = None if only_qv or k_cache is None else k_cache[pages].flatten(1, 2)
    o = contract.check_output(KVCACHE, q, v_cache.shape[-1], out)
    lse = torch.full((q.shape[1], q.shape[0]), float("nan"))
    values = v_cache[pages].flatten(1, 2)
    with left_out(cu_q, max_seqlen_q, o, lse.t()):
        attend(None if keys is None else q, qv, keys, values, cu_q[:-1], counts, lengths, rules, o, lse)
    return (o, lse) if return_softmax_lse else o


@closed_kernel
def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    page_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int | None = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
    sinks: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    *,
    only_qv: bool = False,
) -> Result:
    """Attention of packed q [T, H, D] over packed k [S, kv heads, D], v [S, kv heads, Dv]; the answer as above.

    Raises ContractBreach, and StandInGap for what SGLang does not use.
    """
    require_absent(VARLEN, seqused_q=seqused_q, seqused_k=seqused_k, page_table=page_table, only_qv=only_qv or None)
    cu_q, cu_k = contract.check_ragged(q, k, v, qv, cu_seqlens_q, cu_seqlens_k)
    counts, lengths = contract.differences(cu_q), contract.differences(cu_k)
    contract.check_cover(VARLEN, "max_seqlen_q", max_seqlen_q, counts)
    contract.check_cover(VARLEN, "max_seqlen_k", max_seqlen_k, lengths)
    rules = Rules(
        scale=float(softmax_scale or _width(q, qv) ** -0.5),
        causal=bool(causal),
        left=_side(window_size[0]),
        right=_side(window_size[1]),
        chunk=attention_chunk or 0,
        softcap=float(softcap),
        sinks=sinks,
        q_descale=q_descale,
        k_descale=k_descale,
        v_descale=v_descale,
    )
    contract.check_rules(VARLEN, rules, len(counts), q.shape[1], k.shape[1])
    contract.check_causal(VARLEN, "cu_seqlens_k", rules.causal, counts, lengths)
    rows = torch.tensor(cu_k[:-1], dtype=torch.int64)[:, None] + torch.arange(max(lengths, default=0))
    rows = rows.clamp(max=max(k.shape[0] - 1, 0))  # past a request's end: masked, only has to exist
    o = contract.check_output(VARLEN, q, v.shape[-1], out)
    lse = torch.full((q.shape[1], q.shape[0]), float("nan"))
    attend(q, qv, k[rows], v[rows], cu_q[:-1], counts, lengths, rules, o, lse)
    return (o, lse) if return_softmax_lse else o


@closed_kernel
def get_scheduler_metadata(
    batch_size: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    num_heads: int,
    num_heads_k: int,
    headdim: int,
    cache_seqlens: torch.Tensor,
    qkv_dtype: torch.dtype = torch.bfloat16,
    headdim_v: int | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    page_size: int | None = None,
    max_seqlen_k_new: int = 0,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int = 0,
    has_softcap: bool = False,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
) -> torch.Tensor:
    """A schedule for a later flash_attn_with_kvcache over as many requests: int32, 1 + 4 * (batch rounded up to 4).

    The size is what SGLang's graph buffer for it holds. Raises ContractBreach.
    """
    lengths = contract.check_ints(SCHEDULER, "cache_seqlens", cache_seqlens, 1).tolist()
    given = len(lengths)
    require(
        given == batch_size,
        SCHEDULER,
        "cache_seqlens",
        f"has {given} entries for batch_size {batch_size}",
        rule="entries",
    )
    require(num_heads % num_heads_k == 0, SCHEDULER, "num_heads", f"{num_heads} is no multiple of {num_heads_k}")
    if cu_seqlens_q is not None:
        entries = len(contract.check_cumulative(SCHEDULER, "cu_seqlens_q", cu_seqlens_q))
        require(
            entries == batch_size + 1,
            SCHEDULER,
            "cu_seqlens_q",
            f"has {entries} entries for {batch_size} requests",
            rule="entries",
        )
    for request, length in enumerate(lengths):
        if not 0 <= length <= max_seqlen_k:
            detail = f"{max_seqlen_k} does not cover the length {length}"
            raise ContractBreach(SCHEDULER, "max_seqlen_k", detail, request)
    return torch.zeros(contract.schedule_size(batch_size), dtype=torch.int32, device=cache_seqlens.device)


def _side(size: int | None) -> int:
    """One side of a window: the number of keys, or -1 for no bound (None and any negative number mean that)."""
    return -1 if size is None or size < 0 else int(size)


def _width(q: torch.Tensor, qv: torch.Tensor | None) -> int:
    """The head dim of the default scale: FlashAttention counts the qv part in."""
    return q.shape[-1] + (qv.shape[-1] if qv is not None else 0)
