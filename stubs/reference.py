"""Dense attention of one request in float64: the numeric truth, written without any code of SGLang."""

from __future__ import annotations

import math

import torch

# atol = rtol of an output against the reference, by dtype of q: a few dozen roundings of the dtype, whose errors
# do not grow with the length since softmax weights sum to 1. On a GPU tensor cores round the products too.
TOLERANCES = {
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
    torch.float8_e4m3fn: 1.5e-1,
    torch.float8_e5m2: 3e-1,
}
CUDA_TOLERANCES = TOLERANCES | {torch.float16: 3e-2}


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    mask: torch.Tensor | None = None,
    window: int = -1,
    chunk: int = 0,
    logit_cap: float = 0.0,
    sinks: torch.Tensor | None = None,
    temperature_len: int = 0,
) -> torch.Tensor:
    """Outputs [n, heads, dv] in float64 for q [n, heads, d], k [len, kv heads, d], v [len, kv heads, dv].

    Without ``mask`` query i stands at position len - n + i and sees the keys up to there, and with ``window`` >= 0
    only the ``window`` keys before it and its own: the meaning of RadixAttention.sliding_window_size, see `visible`.
    ``chunk`` > 0 shows a query the keys of its own chunk of so many positions alone, see `visible`.
    ``mask`` bool [n, len] says instead which keys each query sees, window and chunk included. ``logit_cap`` > 0 bends a scaled
    score s to cap * tanh(s / cap). ``temperature_len`` > 1 multiplies the scores of a query at position p behind it by
    log(p) / log(temperature_len), after the cap (SGLang's Triton kernels for Grok). ``sinks`` [heads] are logits that
    take weight and give no value. A query that sees no key gives 0, as FlashAttention and SGLang's kernels do for an
    empty row.
    """
    n, heads, _ = q.shape
    length, kv_heads, _ = k.shape
    assert heads % kv_heads == 0, f"{heads} heads over {kv_heads} kv heads"
    assert mask is None or (window < 0 and not chunk), "a mask says all; fold the window into it with `visible`"
    seen = visible(n, length, window, q.device, chunk=chunk) if mask is None else mask
    group = heads // kv_heads
    keys, values = (tensor.double().repeat_interleave(group, 1) for tensor in (k, v))
    scores = _scores(q, keys, scale, logit_cap, temperature_len).masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.double().view(heads, 1, 1).expand(heads, n, 1)], -1)
    weights = torch.where(seen.any(-1)[:, None], scores.softmax(-1)[..., :length], 0.0)
    # A key that a query may not see can hold anything, inf included: 0 * inf must not reach the sum.
    values = torch.where(seen.any(0)[:, None, None], values, 0.0)
    return torch.einsum("hqk,khd->qhd", weights, values)


def _scores(q: torch.Tensor, keys: torch.Tensor, scale: float, logit_cap: float, temperature_len: int) -> torch.Tensor:
    """Scaled, capped and heated scores [heads, n, len], float64, of q [n, heads, d] over keys [len, heads, d]."""
    scores = torch.einsum("qhd,khd->hqk", q.double(), keys) * scale
    if logit_cap > 0:
        scores = logit_cap * torch.tanh(scores / logit_cap)
    if temperature_len:
        position = torch.arange(len(keys) - len(q), len(keys), device=q.device).double()
        heat = torch.where(position > temperature_len, position.clamp(min=1).log() / math.log(temperature_len), 1.0)
        scores = scores * heat[:, None]
    return scores


def visible(
    n: int, length: int, window: int = -1, device: torch.device | None = None, *, chunk: int = 0
) -> torch.Tensor:
    """Bool [n, length]: causal, the queries at the last n positions; a query at p sees p - window .. p.

    With ``chunk`` c it sees c * (p // c) .. p, as `same_chunk` has it.

    So a window of W shows W + 1 keys. Sources, in SGLang 0.5.16 and 0.5.23: the Triton extend kernel keeps
    q_pos <= k_pos + SLIDING_WINDOW_SIZE (extend_attention.py); flashattention_backend.py passes window (W, 0), both
    ends inclusive, and says that the models subtracted 1 already (gemma2.py: sliding_window - 1); torch_native keeps
    k_pos >= q_pos - W; flashinfer's decode gathers min(length, W + 1) keys. The Triton backend's decode alone gathers
    min(length, W) keys (update_sliding_window_buffer), one fewer.
    """
    position = torch.arange(length - n, length, device=device)[:, None]
    key = torch.arange(length, device=device)[None]
    seen = key <= position
    if chunk:
        seen = seen & same_chunk(position[:, 0], key[0], chunk)
    return seen & (key >= position - window) if window >= 0 else seen


def same_chunk(positions: torch.Tensor, keys: torch.Tensor, chunk: int) -> torch.Tensor:
    """Bool [queries, keys]: whether both positions are of one chunk of ``chunk`` of them, counted from position 0 on.

    Source: transformers' Llama 4 (chunked_overlay: query // chunk == key // chunk); the worked example beside
    make_local_attention_virtual_batches in SGLang 0.5.16 and 0.5.23 gives the same blocks.
    """
    return positions[:, None] // chunk == keys[None] // chunk
