"""Stand-ins for flashinfer's TensorRT-LLM attention: refuse a call outside the contract, then answer in plain torch.

Signatures are flashinfer 0.6.8 to 0.7.2's, which SGLang calls by name. The contract is read from SGLang's call sites
and from flashinfer's Python wrappers; it was not checked against the compiled kernels. Differences: float32, any head
dim and any page size are allowed.
"""

from __future__ import annotations

from typing import Any

import torch

from stubs.kernels import trtllm_contract as contract
from stubs.kernels.attention import Rules, attend
from stubs.kernels.contract import ContractBreach, require, require_absent
from stubs.kernels.cover import left_out
from stubs.kernels.door import closed_kernel
from stubs.kernels.flashinfer_contract import lengths_of
from stubs.kernels.flashinfer_wrappers import KVCache

DECODE = "trtllm_batch_decode_with_kv_cache"
CONTEXT = "trtllm_batch_context_with_kv_cache"
Scale = float | torch.Tensor
Sinks = torch.Tensor | list[torch.Tensor]


@closed_kernel
def trtllm_batch_decode_with_kv_cache(
    query: torch.Tensor,
    kv_cache: KVCache,
    workspace_buffer: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    max_seq_len: int,
    bmm1_scale: Scale = 1.0,
    bmm2_scale: Scale = 1.0,
    window_left: int = -1,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    sinks: Sinks | None = None,
    kv_layout: str = "HND",
    enable_pdl: bool | None = None,
    backend: str = "auto",
    q_len_per_req: int | None = 1,
    mask: torch.Tensor | None = None,
    max_q_len: int | None = None,
    cum_seq_lens_q: torch.Tensor | None = None,
    multi_ctas_kv_counter_buffer: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """Causal attention of the last rows of each request: query [rows, H, D] over caches [pages, kv heads, page, D].

    ``block_tables`` int32 [B, P], ``seq_lens`` int32 [B] with the rows' own keys. Every request has ``q_len_per_req``
    rows, or as many as ``cum_seq_lens_q`` int32 [B + 1] says. Raises ContractBreach, and StandInGap for what SGLang
    does not use.
    """
    require_absent(DECODE, mask=mask, **options)
    k_cache, v_cache = _unpack(DECODE, kv_cache, kv_layout)
    contract.check_cache(DECODE, query, k_cache, v_cache)
    contract.check_workspace(DECODE, workspace_buffer)
    lengths = contract.check_lengths(DECODE, seq_lens, max_seq_len, "max_seq_len")
    if cum_seq_lens_q is None:
        rows = _even_rows(query, len(lengths), q_len_per_req)
    else:
        require(q_len_per_req is None, DECODE, "q_len_per_req", f"is {q_len_per_req} beside cum_seq_lens_q")
        rows = contract.check_queries(DECODE, query, cum_seq_lens_q, len(lengths), max_q_len)
    contract.check_counters(DECODE, multi_ctas_kv_counter_buffer, len(lengths), query.shape[1])
    rules = _rules(DECODE, query, bmm1_scale, window_left, sinks, causal=True)
    o = contract.check_output(DECODE, query, v_cache.shape[-1], out, out_dtype)
    with left_out(rows, max_q_len, o):
        return _attend(DECODE, query, k_cache, v_cache, block_tables, rows, lengths, rules, bmm2_scale, o)


@closed_kernel
def trtllm_batch_context_with_kv_cache(
    query: torch.Tensor,
    kv_cache: KVCache,
    workspace_buffer: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    max_q_len: int,
    max_kv_len: int,
    bmm1_scale: Scale,
    bmm2_scale: Scale,
    batch_size: int,
    cum_seq_lens_q: torch.Tensor,
    cum_seq_lens_kv: torch.Tensor,
    window_left: int = -1,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    kv_layout: str = "HND",
    enable_pdl: bool | None = None,
    sinks: Sinks | None = None,
    causal: bool = True,
    multi_ctas_kv_counter_buffer: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """Attention of each request's last rows, as many as ``cum_seq_lens_q`` int32 [B + 1] says; otherwise as above.

    ``cum_seq_lens_kv`` int32 [B + 1] says what ``seq_lens`` says. Rows of the query behind the last request stay as
    they are in ``out``, NaN without it.
    """
    require_absent(CONTEXT, **options)
    k_cache, v_cache = _unpack(CONTEXT, kv_cache, kv_layout)
    contract.check_cache(CONTEXT, query, k_cache, v_cache)
    contract.check_workspace(CONTEXT, workspace_buffer)
    lengths = contract.check_lengths(CONTEXT, seq_lens, max_kv_len, "max_kv_len")
    given = len(lengths)
    require(
        given == batch_size, CONTEXT, "seq_lens", f"has {given} entries for batch_size {batch_size}", rule="entries"
    )
    rows = contract.check_queries(CONTEXT, query, cum_seq_lens_q, batch_size, max_q_len)
    contract.check_cumulative_keys(CONTEXT, cum_seq_lens_kv, lengths)
    contract.check_counters(CONTEXT, multi_ctas_kv_counter_buffer, batch_size, query.shape[1])
    require(causal or window_left < 0, CONTEXT, "window_left", f"is {window_left} without a causal mask")
    rules = _rules(CONTEXT, query, bmm1_scale, window_left, sinks, causal=causal)
    o = contract.check_output(CONTEXT, query, v_cache.shape[-1], out, out_dtype)
    with left_out(rows, max_q_len, o):
        return _attend(CONTEXT, query, k_cache, v_cache, block_tables, rows, lengths, rules, bmm2_scale, o)


def get_device_sm_count(device: object = None) -> int:
    """Multiprocessors of the GPU that SGLang is told of."""
    return contract.SM_COUNT


def get_trtllm_gen_multi_ctas_kv_counter_bytes(batch_size: int, num_qo_heads: int, sm_count: int) -> int:
    """Bytes of the counter buffer of a batch."""
    return contract.counter_bytes(batch_size, num_qo_heads, sm_count)


def _even_rows(query: torch.Tensor, batch: int, q_len_per_req: int | None) -> list[int]:
    """Cumulative rows where every request has as many."""
    if q_len_per_req is None:
        raise ContractBreach(DECODE, "q_len_per_req", "is None, and so is cum_seq_lens_q", rule="missing")
    held, width = query.shape[0], int(q_len_per_req)
    require(held == batch * width, DECODE, "query", f"has {held} rows for {batch} requests of {width}")
    return list(range(0, batch * width + 1, width))


def _unpack(function: str, cache: KVCache, kv_layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V as [pages, kv heads, page, D] views, of a pair or of one tensor [pages, 1 or 2, ...]."""
    require(kv_layout in ("NHD", "HND"), function, "kv_layout", f"is {kv_layout!r}, expected NHD or HND")
    if isinstance(cache, tuple):
        k_cache, v_cache = cache
    else:
        halves = cache.dim() == 5 and cache.shape[1] in (1, 2)
        require(
            halves, function, "kv_cache", f"{tuple(cache.shape)}, expected [pages, 1 or 2, ...] or a pair", rule="shape"
        )
        k_cache, v_cache = cache[:, 0], cache[:, -1]
    if kv_layout == "NHD":
        return k_cache.transpose(-3, -2), v_cache.transpose(-3, -2)
    return k_cache, v_cache


def _rules(
    function: str, query: torch.Tensor, bmm1_scale: Scale, window_left: int, sinks: Sinks | None, *, causal: bool
) -> Rules:
    return Rules(
        scale=_number(function, "bmm1_scale", bmm1_scale),
        causal=causal,
        left=window_left,
        sinks=contract.check_sinks(function, sinks, query.shape[1]),
    )


def _number(function: str, name: str, scale: Scale) -> float:
    if isinstance(scale, torch.Tensor):
        fits = scale.dtype == torch.float32 and scale.numel() == 1
        require(fits, function, name, f"{tuple(scale.shape)} of {scale.dtype}, expected one torch.float32")
    return float(scale)


def _attend(
    function: str,
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    rows: list[int],
    lengths: list[int],
    rules: Rules,
    bmm2_scale: Scale,
    out: torch.Tensor,
) -> torch.Tensor:
    counts, (pages, _, page, _) = lengths_of(rows), k_cache.shape
    if rules.causal:
        contract.check_causal(function, counts, lengths)
    table = contract.check_table(function, block_tables, lengths, counts, pages, page, rules.left)
    keys, values = (cache[table].transpose(2, 3).flatten(1, 2) for cache in (k_cache, v_cache))
    answer = torch.full(out.shape, float("nan"))
    lse = torch.empty(query.shape[1], query.shape[0])
    attend(query, None, keys, values, rows[:-1], counts, lengths, rules, answer, lse)
    answer *= _number(function, "bmm2_scale", bmm2_scale)
    out[: rows[-1]] = answer[: rows[-1]].to(out.dtype)
    return out
