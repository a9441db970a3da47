"""Softmax attention of a ragged batch in plain float32 torch: what the attention stand-ins answer with."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Rules:
    """What shapes the scores of every request alike."""

    scale: float
    causal: bool = False
    left: int = -1  # keys left of the query's own position that it sees; -1 = all
    right: int = -1  # keys right of it that it sees; -1 = all
    chunk: int = 0  # a query sees only keys of its own chunk of positions; 0 = none
    softcap: float = 0.0  # scores become softcap * tanh(score / softcap); 0 = off
    mask: torch.Tensor | None = None  # bool [requests, most queries, most keys]: what each query may see at most
    sinks: torch.Tensor | None = None  # [heads], a logit a head that takes weight and has no value
    q_descale: torch.Tensor | None = None  # [requests, kv heads]
    k_descale: torch.Tensor | None = None
    v_descale: torch.Tensor | None = None


def attend(
    q: torch.Tensor | None,
    qv: torch.Tensor | None,
    keys: torch.Tensor | None,
    values: torch.Tensor,
    starts: list[int],
    counts: list[int],
    lengths: list[int],
    rules: Rules,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Fill ``out`` [T, heads, Dv] and ``lse`` [heads, T] for the rows of every request; other rows stay as they are.

    Request r has ``counts[r]`` query rows from ``starts[r]`` on, at the last of its ``lengths[r]`` positions;
    its keys and values stand at ``keys[r, :lengths[r]]`` [requests, longest, kv heads, D]. Scores are q·k plus qv·v
    (either may be None), as in absorbed MLA. A row that sees no key gets 0 and -inf.
    """
    longest = max(counts, default=0)
    if longest == 0:
        return
    count = torch.tensor(counts)
    rows = torch.tensor(starts)[:, None] + torch.arange(longest)[None]
    live = torch.arange(longest)[None] < count[:, None]
    rows = torch.where(live, rows, 0)
    mask = visible(count, torch.tensor(lengths), longest, values.shape[1], rules)
    scores = _scores(q, qv, keys, values, rows, rules)  # [B, kv heads, group, n, L]
    scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
    kv_heads, group = scores.shape[1:3]
    total = torch.logsumexp(scores, dim=-1) if scores.shape[-1] else scores.new_full(scores.shape[:-1], float("-inf"))
    if rules.sinks is not None:
        total = torch.logaddexp(total, rules.sinks.float().view(1, kv_heads, group, 1))
    weights = torch.exp(scores - torch.where(total == float("-inf"), 0.0, total)[..., None])
    # Keys that no query of the batch sees hold other requests' or nobody's data: 0 * inf must not make NaN.
    seen = mask.any(1)[:, :, None, None]
    seen_values = torch.where(seen, values.float(), 0.0).permute(0, 2, 1, 3)  # [B, kv heads, L, Dv]
    answer = torch.matmul(weights.flatten(2, 3), seen_values).view(-1, kv_heads, group, longest, values.shape[-1])
    if rules.v_descale is not None:
        answer = answer * rules.v_descale[:, :, None, None, None]
    picked = answer.permute(0, 3, 1, 2, 4).flatten(2, 3)[live]
    out[rows[live]] = picked.to(out.dtype)
    lse[:, rows[live]] = total.permute(0, 3, 1, 2).flatten(2, 3)[live].T


def visible(count: torch.Tensor, length: torch.Tensor, longest: int, width: int, rules: Rules) -> torch.Tensor:
    """Bool [requests, longest, width]: which key each query row sees. ``count`` and ``length`` are [requests]."""
    query = (length - count)[:, None, None] + torch.arange(longest)[None, :, None]
    key = torch.arange(width)[None, None, :]
    mask = key < length[:, None, None]
    if rules.causal:
        mask = mask & (key <= query)
    if rules.left >= 0:
        mask = mask & (key >= query - rules.left)
    if rules.right >= 0:
        mask = mask & (key <= query + rules.right)
    if rules.chunk > 0:
        mask = mask & (torch.div(key, rules.chunk, rounding_mode="floor") == query // rules.chunk)
    if rules.mask is not None:
        mask = mask & rules.mask
    return mask.expand(-1, longest, -1)


def _scores(
    q: torch.Tensor | None,
    qv: torch.Tensor | None,
    keys: torch.Tensor | None,
    values: torch.Tensor,
    rows: torch.Tensor,
    rules: Rules,
) -> torch.Tensor:
    """Scaled and capped scores [requests, kv heads, group, n, width] of the query rows ``rows`` [requests, n]."""
    kv_heads = values.shape[2]
    scores: torch.Tensor | None = None
    for queries, cached in ((q, keys), (qv, values)):
        if queries is None or cached is None:
            continue
        picked = queries[rows].float().view(*rows.shape, kv_heads, -1, queries.shape[-1])  # [B, n, kv heads, group, D]
        group = picked.shape[3]
        part = torch.matmul(picked.permute(0, 2, 3, 1, 4).flatten(2, 3), cached.float().permute(0, 2, 3, 1))
        part = part.view(rows.shape[0], kv_heads, group, rows.shape[1], cached.shape[1])
        scores = part if scores is None else scores + part
    assert scores is not None, "either q with keys or qv must be given"
    for descale in (rules.q_descale, rules.k_descale):
        if descale is not None:
            scores = scores * descale[:, :, None, None, None]
    scores = scores * rules.scale
    return rules.softcap * torch.tanh(scores / rules.softcap) if rules.softcap else scores
