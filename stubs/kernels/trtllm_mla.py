"""Stand-ins for flashinfer's TensorRT-LLM kernels for latent attention: refuse what is outside the contract, then answer.

Signatures are flashinfer 0.6.8 to 0.7.2's, which SGLang calls by name. The contract is read from SGLang's call sites
and from flashinfer's Python wrappers; it was not checked against the compiled kernels. That LSE is in base 2 is read
in what computes it (``lse.cuh``), and so does SGLang take it of a decode over several GPUs. Differences: float32, any
latent and any rotary width are allowed, and all backends are one.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from stubs.kernels import trtllm_contract as contract
from stubs.kernels import trtllm_mla_contract as latent
from stubs.kernels.attention import Rules, attend
from stubs.kernels.contract import StandInGap, require, require_absent
from stubs.kernels.door import closed_kernel
from stubs.kernels.flashinfer_attention import Answer
from stubs.kernels.flashinfer_contract import check_indptr, lengths_of
from stubs.kernels.latent_contract import answer_dtype

DECODE = "trtllm_batch_decode_with_kv_cache_mla"
RAGGED = "trtllm_ragged_attention_deepseek"
BACKENDS = ("auto", "trtllm-gen", "cute-dsl")


@closed_kernel
def trtllm_batch_decode_with_kv_cache_mla(
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    workspace_buffer: torch.Tensor,
    qk_nope_head_dim: int,
    kv_lora_rank: int,
    qk_rope_head_dim: int,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    max_seq_len: int,
    sparse_mla_top_k: int = 0,
    out: torch.Tensor | None = None,
    bmm1_scale: float = 1.0,
    bmm2_scale: float = 1.0,
    sinks: torch.Tensor | None = None,
    skip_softmax_threshold_scale_factor: float | None = None,
    enable_pdl: bool | None = None,
    backend: str = "auto",
    return_lse: bool = False,
    multi_ctas_kv_counter_buffer: torch.Tensor | None = None,
    enable_dcp: bool = False,
    **options: Any,
) -> torch.Tensor | Answer:
    """Causal absorbed attention: query [B, n, H, latent + rotary], the last n positions, over [pages, page, the same].

    ``block_tables`` int32 [B, P], ``seq_lens`` int32 [B] with the rows' own keys. The answer is [B, n, H, latent], in
    bfloat16 where query and cache are e4m3; what those are scaled by is in ``bmm1_scale`` (of query times key) and
    ``bmm2_scale`` (of the value). Its LSE is [B * n, H] in base 2, natural of cute-dsl. Raises ContractBreach, and StandInGap
    for what SGLang uses over several GPUs alone.
    """
    given = {"sparse_mla_top_k": sparse_mla_top_k or None, "enable_dcp": enable_dcp or None, "out": out}
    require_absent(DECODE, sinks=sinks, skip_softmax=skip_softmax_threshold_scale_factor, **given, **options)
    require(backend in BACKENDS, DECODE, "backend", f"is {backend!r}, expected one of {', '.join(BACKENDS)}")
    width = kv_lora_rank + qk_rope_head_dim
    cache = latent.check_cache(DECODE, query, kv_cache, width)
    contract.check_workspace(DECODE, workspace_buffer)
    lengths = contract.check_lengths(DECODE, seq_lens, max_seq_len, "max_seq_len")
    batch, rows, heads = query.shape[:3]
    held = len(lengths)
    require(held == batch, DECODE, "seq_lens", f"has {held} entries for {batch} requests", rule="entries")
    contract.check_counters(DECODE, multi_ctas_kv_counter_buffer, batch, heads)
    counts, (pages, page, _) = [rows] * batch, cache.shape
    contract.check_causal(DECODE, counts, lengths)
    latent.check_columns(DECODE, block_tables, page)
    table = contract.check_table(DECODE, block_tables, lengths, counts, pages, page, -1)
    keys = cache[table].flatten(1, 2)[:, :, None]
    answer = torch.full((batch * rows, heads, kv_lora_rank), float("nan"))
    lse = torch.full((heads, batch * rows), float("nan"))
    rules, starts = Rules(scale=float(bmm1_scale), causal=True), list(range(0, batch * rows, rows))
    attend(query.flatten(0, 1), None, keys, keys[..., :kv_lora_rank], starts, counts, lengths, rules, answer, lse)
    answer = (answer * float(bmm2_scale)).to(answer_dtype(query.dtype)).view(batch, rows, heads, kv_lora_rank)
    base = 1.0 if backend == "cute-dsl" else math.log(2)
    return (answer, lse.T.contiguous() / base) if return_lse else answer


@closed_kernel
def trtllm_ragged_attention_deepseek(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    workspace_buffer: torch.Tensor,
    seq_lens: torch.Tensor,
    max_q_len: int,
    max_kv_len: int,
    bmm1_scale: float,
    bmm2_scale: float,
    o_sf_scale: float,
    batch_size: int,
    window_left: int,
    cum_seq_lens_q: torch.Tensor,
    cum_seq_lens_kv: torch.Tensor,
    enable_pdl: bool,
    is_causal: bool,
    return_lse: bool,
    attention_sinks: torch.Tensor | None = None,
    skip_softmax_threshold_scale_factor: float | None = None,
    out: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor | Answer:
    """Attention of packed query [T, H, D] over packed key [S, H, D] and value [S, H, Dv], as both ``cum_seq_lens`` say.

    Both are int32 [B + 1]; ``seq_lens`` [B] are the keys of each request. The answer is [T, H, Dv], in bfloat16 where the
    others are e4m3, its LSE [T, H] in base 2; rows of a request without keys are whatever the memory held: NaN. Raises
    ContractBreach.
    """
    require_absent(RAGGED, sinks=attention_sinks, skip_softmax=skip_softmax_threshold_scale_factor, **options)
    if window_left >= 0:
        raise StandInGap(RAGGED, f"window_left {window_left}")
    contract.check_workspace(RAGGED, workspace_buffer)
    queries = check_indptr(RAGGED, "cum_seq_lens_q", cum_seq_lens_q, batch_size)
    keys = check_indptr(RAGGED, "cum_seq_lens_kv", cum_seq_lens_kv, batch_size)
    counts, lengths = lengths_of(queries), lengths_of(keys)
    latent.check_ragged_lengths(RAGGED, seq_lens, lengths)
    latent.check_longest(RAGGED, "max_q_len", max_q_len, counts)
    latent.check_longest(RAGGED, "max_kv_len", max_kv_len, lengths)
    latent.check_packed(RAGGED, query, key, value, queries[-1], keys[-1])
    if is_causal:
        contract.check_causal(RAGGED, counts, lengths)
    latent.check_wide(RAGGED, out)
    result = contract.check_output(
        RAGGED, query, value.shape[-1], out, answer_dtype(query.dtype) if out is None else None
    )
    places = torch.tensor(keys[:-1], dtype=torch.int64)[:, None] + torch.arange(max(lengths, default=0))[None]
    places = places.clamp(max=max(key.shape[0] - 1, 0))  # past a request's end: masked, only has to exist
    answer = torch.full(result.shape, float("nan"))
    lse = torch.full((query.shape[1], query.shape[0]), float("nan"))
    with_keys = [count if length else 0 for count, length in zip(counts, lengths, strict=True)]
    rules = Rules(scale=float(bmm1_scale), causal=is_causal)
    attend(query, None, key[places], value[places], queries[:-1], with_keys, lengths, rules, answer, lse)
    result.copy_(answer * float(bmm2_scale))
    return (result, lse.T.contiguous() / math.log(2)) if return_lse else result
