"""What an attention output ought to be, in float64; and what it would be under a wrong rule."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from fuzz.oracle.rule import Rule, mask_of
from fuzz.oracle.view import StepView
from stubs.kv_memory import kv_memory
from stubs.layer import layer_of
from stubs.live import History
from stubs.model_attention import sinks_of
from stubs.plan import RowPlan
from stubs.quantised import as_stored
from stubs.reference import attend, visible
from stubs.sglang import kv_torch_dtype
from stubs.tap import Tap


def expected(view: StepView, tap: Tap, row: RowPlan, rule: Rule) -> torch.Tensor:
    """float64 [count, heads, dim]: attention of the row's queries over its committed KV and its own new KV."""
    if rule.knows_no_encoder:
        return _without_encoder(view, tap, row)
    world, heads = view.world, view.world.num_kv_heads
    layer = layer_of(world, tap.layer_index, on_draft=view.plan.on_draft)
    has_sinks = world.sinks and not view.plan.on_draft and rule.sinks_counted
    histories = row.live.draft if view.plan.on_draft else row.live.target
    known = held(view, tap, row, rule) if rule.pool else histories[tap.layer_index]
    history = known.first(row.prefix)
    rows = slice(row.start, row.start + row.count)
    k = tap.k.reshape(len(tap.k), heads, world.head_dim)[row.given(layer)]
    v = tap.v.reshape(len(tap.v), heads, world.v_dim)[row.given(layer)]
    if rule.pool and not rule.own_as_given and not layer.is_cross:
        k, v = known.k[row.prefix :], known.v[row.prefix :]
    elif not rule.own_as_given:
        k, v = as_stored(world, k, "K"), as_stored(world, v, "V")
    q = tap.q.reshape(view.plan.tokens, world.num_heads, world.head_dim)[rows]
    if rule.q_rounded:
        q = q.to(kv_torch_dtype(world)).float()
    mask = mask_of(layer, row, rule)
    if rule.counts_own_twice and not layer.is_cross:
        k, v = torch.cat([k, k]), torch.cat([v, v])
        seen = torch.ones(row.count, row.count, dtype=torch.bool)
        mask = torch.cat([mask[:, : row.prefix], seen, mask[:, row.prefix :]], dim=1)
    return attend(
        q,
        torch.cat([history.k, k]),
        torch.cat([history.v, v]),
        scale=layer.scaling,
        mask=mask,
        logit_cap=0.0 if rule.ignores_logit_cap else float(layer.logit_cap),
        temperature_len=0 if rule.ignores_temperature else layer.temperature_len,
        sinks=sinks_of(world, tap.layer_index).double() + math.log(rule.sinks_counted) if has_sinks else None,
    )


def _without_encoder(view: StepView, tap: Tap, row: RowPlan) -> torch.Tensor:
    """The same as `expected` where a backend takes the first entries of the request's row for those of its own tokens."""
    world, layer = view.world, layer_of(view.world, tap.layer_index)
    length = row.prefix + row.count - row.encoder
    known = held(view, tap, replace(row, prefix=length, count=0), Rule())
    q = tap.q.reshape(view.plan.tokens, world.num_heads, world.head_dim)[row.start : row.start + row.count]
    seen = torch.ones(row.count, length, dtype=torch.bool) if layer.is_cross else visible(row.count, length)
    return attend(q, known.k, known.v, scale=layer.scaling, mask=seen)


def held(view: StepView, tap: Tap, row: RowPlan, rule: Rule) -> History:
    """The row's prefix and own KV as the pool holds them."""
    slots, read = torch.tensor(row.live.slots[: row.prefix + row.count], dtype=torch.int64), {}
    for buffer in kv_memory(view.plan.runner.token_to_kv_pool):
        if buffer.layer == tap.layer_index:
            rows = buffer.tensor[buffer.rows_at(slots.to(buffer.tensor.device))].cpu()
            read[buffer.half] = rows.view(kv_torch_dtype(view.world)).float()
    read.setdefault("V", read["K"][..., : view.world.kv_lora_rank])  # of latent KV a row is key and value
    of_keys, of_values = view.world.kv_scales
    read["K"] = read["K"] * (1.0 if rule.pool == "unscaled" else of_keys)
    return History(read["K"], read["V"] * (of_values if rule.pool == "scaled" else 1.0))
