"""Numeric oracle: each attention output against float64 dense attention over what the request's KV ought to hold.

Checks values and NaN of every live row, and says which wrong rule would explain a wrong output (a window that is
ignored, one token too few, ...), so that faults of different causes get different names. Nodes that fill a draft's tree
up are checked, since SGLang may accept them; a fault that shows in them alone says so. Does not check rows of padding,
nor logits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from fuzz.finding import TIMES_NEARER, TIMES_TOLERANCE, Signature
from fuzz.oracle.rule import (
    ENCODER_EXPLANATIONS,
    EXPLANATIONS,
    SCALE_EXPLANATIONS,
    SEVERAL_LEFT_OUT,
    Rule,
    mask_of,
    of_chunks,
)
from fuzz.oracle.view import Fault, StepView
from stubs.kv_memory import kv_memory
from stubs.layer import layer_of
from stubs.live import History
from stubs.model_attention import sinks_of
from stubs.plan import RowPlan
from stubs.quantised import as_stored
from stubs.reference import CUDA_TOLERANCES, TOLERANCES, attend, visible
from stubs.sglang import kv_torch_dtype
from stubs.tap import Tap
from stubs.world import World

# What a logit far from 0 costs in precision: a few roundings of float32 (2 ** -24), of each of 16 or 32 products.
SHIFT_BLUR = 2.0**-19
PLAIN_WIDTH = 64  # columns of the widest rows that the tolerances were found for
# How much of its tolerance a right output takes up, over 2,400 steps of 0.5.23: in float32 a quarter, in 16 bits three
# fifths, where wide rows take up no more than others; fp8 all of it. What is wrong by little is near to much by chance:
# a rule that leaves more must be nearer than the truth by far.
ROUNDING_SHARES = {"float32": 0.25, "float16": 0.6, "bfloat16": 0.6}
FAR_NEARER = 100.0
FILL_ALONE = ", which only fills the tree up: accepted where the target's next token is 0"


def matches_reference(view: StepView) -> list[Fault]:
    """The worst deviation of the step, if it is beyond the dtype's tolerance (atol = rtol)."""
    view = view.eagerly()
    misshapen = [tap for tap in view.taps if not _is_an_output(view, tap)]
    if misshapen:
        return [_wrong_shape(view, misshapen[0])]
    rows = list(_compared(view))
    for row in rows:
        # Where the inputs themselves are NaN, so is the truth: the step that made them so has been reported.
        if bool((torch.isnan(row.got) & ~torch.isnan(row.wanted)).any()):
            return [_fault(view, "nan", row, _how_far(view, row, Rule()))]
    wrong = [row for row in rows if _is_wrong(view, row)]
    if not wrong:
        return []
    worst = max(wrong, key=lambda row: (not row.is_fill_alone, row.excess))
    rule = _explanation(view, wrong)
    evidence = _how_far(view, worst, rule)
    return [_fault(view, kind, worst, evidence) for kind in rule.kinds]


def _is_an_output(view: StepView, tap: Tap) -> bool:
    """Whether a row of all heads was given for each token."""
    tokens = view.plan.tokens
    return len(tap.out) == tokens and tap.out.numel() == tokens * view.world.num_heads * view.world.v_dim


def _wrong_shape(view: StepView, tap: Tap) -> Fault:
    wanted = (view.plan.tokens, view.world.num_heads * view.world.v_dim)
    return Fault(
        Signature("numeric", "wrong_shape", f"{type(view.leaf).__name__}.{view.method}"),
        f"{view.plan.mode} on {type(view.leaf).__name__}: output of a wrong shape",
        f"layer {tap.layer_index} gave {tuple(tap.out.shape)}, expected {wanted}",
        {},
    )


@dataclass(frozen=True, slots=True)
class _Compared:
    """One request's rows of one layer: ``got`` and ``wanted`` float64 [count, heads, dim]."""

    tap: Tap
    row: RowPlan
    got: torch.Tensor
    wanted: torch.Tensor
    tolerance: float

    @property
    def excess(self) -> float:
        return _excess(self.got, self.wanted, self.tolerance)

    @property
    def is_fill_alone(self) -> bool:
        """Whether what is wrong are nodes alone that fill a tree up."""
        is_right = (_beyond(self.got, self.wanted, self.tolerance) <= 0).flatten(1).all(dim=1)
        return bool(is_right[: self.row.count - self.row.fill].all())


def _excess(got: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> float:
    """How far the worst element lies beyond the tolerance; at most 0 where all are within it."""
    return float(_beyond(got, wanted, tolerance).max())


def _beyond(got: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> torch.Tensor:
    return (got - wanted).abs() - tolerance * (1 + wanted.abs())


def times_tolerance(got: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> float:
    """How many times the tolerance the worst element is off; inf where it alone is NaN."""
    times = (got - wanted).abs() / (tolerance * (1 + wanted.abs()))
    times = torch.where(torch.isnan(got), math.inf, times).masked_fill(torch.isnan(wanted), 0.0)
    return float(times.max())


def tolerance_of(view: StepView) -> float:
    """How far an output may be off the truth, absolutely and relatively."""
    table = CUDA_TOLERANCES if view.world.device == "cuda" else TOLERANCES
    world, rounding = view.world, table[kv_torch_dtype(view.world)]
    return rounding * _width(world) * _spread(world) + SHIFT_BLUR * abs(world.logit_shift)


def _width(world: World) -> float:
    """How many times as far the roundings of a product of rows go as over rows of PLAIN_WIDTH: they add up as a walk does.

    To fp8 queries and keys themselves are rounded, before they are scaled by their width: a logit is off by as much over
    rows of any. Measured over latent rows of 288 and 576 columns: by 0.083 at the most where a step is right.
    """
    return 1.0 if world.kv_dtype != "auto" else max(1.0, math.sqrt(world.head_dim / PLAIN_WIDTH))


def _spread(world: World) -> float:
    """How many times as far in logits a rounding goes as where they are scaled by the width of keys.

    To fp8: some backends round queries so as well, those of Triton for the prefix alone. In float32: of a logit itself,
    which is nothing beside what the tolerances of 16 bits allow for.
    """
    if world.kv_dtype == "auto" and world.dtype != "float32":
        return 1.0
    return max(1.0, round(layer_of(world, 0).scaling * math.sqrt(world.head_dim), 6))


def _compared(view: StepView) -> Iterator[_Compared]:
    tolerance = tolerance_of(view)
    for tap in (tap.on_host for tap in view.taps):
        out = tap.out.reshape(view.plan.tokens, view.world.num_heads, view.world.v_dim).double()
        for row in view.plan.rows:
            got = out[row.start : row.start + row.count]
            yield _Compared(tap, row, got, _expected(view, tap, row, Rule()), tolerance)


def what_is_wrong(view: StepView) -> tuple[str, ...]:
    """The kinds of what the step's outputs have wrong; none where they are right."""
    wrong = [row for row in _compared(view) if _is_wrong(view, row)]
    return _explanation(view, wrong).kinds if wrong else ()


def _is_wrong(view: StepView, row: _Compared) -> bool:
    """Whether the row is right neither with its own KV as the pool holds it nor as it was given: backends read either."""
    return row.excess > 0 and not any(_left_by(view, row, rule) <= 1 for rule in _own_as_given(view, Rule()))


def _explanation(view: StepView, wrong: list[_Compared]) -> Rule:
    """The wrong rule under which every wrong row is right: of those of scales the nearest, else the first; else the right one."""
    nearest = _of_scales(view, wrong) if view.world.kv_scale else None
    if nearest is not None:
        return nearest
    kinds = EXPLANATIONS + of_chunks(view.world.attention_chunk_size) + SEVERAL_LEFT_OUT
    if view.world.encoder_decoder:
        kinds += ENCODER_EXPLANATIONS
    for kind in (one for one in kinds if view.world.kv_scale or not one.pool):
        for rule in (kind, *_own_as_given(view, kind)):
            if _is_explained(view, wrong, rule):
                return rule
    return Rule()


def _is_explained(view: StepView, wrong: list[_Compared], rule: Rule) -> bool:
    """Whether every wrong row is within its tolerance under ``rule``, and at rounding level or far nearer than to the truth."""
    most = 0.0
    for row in wrong:
        most = max(most, _left_by(view, row, rule))
        if most > 1:
            return False
    error = max(times_tolerance(row.got, row.wanted, row.tolerance) for row in wrong)
    return most <= _rounding_share(view.world) or error >= FAR_NEARER * most


def _rounding_share(world: World) -> float:
    """How much of the tolerance a right output takes up; all of it where that was not measured."""
    if world.kv_dtype != "auto" or world.device == "cuda":
        return 1.0
    return ROUNDING_SHARES[world.dtype] / (1.0 if world.dtype == "float32" else _width(world))


def _of_scales(view: StepView, wrong: list[_Compared]) -> Rule | None:
    """Which of SCALE_EXPLANATIONS explains every wrong row, and the worst at least twice as near as the right rule does.

    fp8's tolerance alone would let much pass, and one of these for another.
    """
    worst = max(wrong, key=lambda row: row.excess)
    off = float((worst.got - worst.wanted).abs().max())
    found: list[tuple[float, Rule]] = []
    for rule in (rule for kind in SCALE_EXPLANATIONS for rule in (kind, *_own_as_given(view, kind))):
        residue = float((worst.got - _expected(view, worst.tap, worst.row, rule)).abs().max())
        if 2 * residue <= off and all(_left_by(view, row, rule) <= 1 for row in wrong):
            found.append((residue, rule))
    return min(found, key=lambda one: one[0])[1] if found else None


def _own_as_given(view: StepView, rule: Rule) -> Iterator[Rule]:
    """``rule`` over the step's own KV as it was given, where a pool of fp8 rounds it; and with queries rounded so as well."""
    if view.world.kv_dtype != "auto":
        yield replace(rule, own_as_given=True)
        yield replace(rule, q_rounded=True)
        yield replace(rule, own_as_given=True, q_rounded=True)


def _left_by(view: StepView, row: _Compared, rule: Rule) -> float:
    """How many times its tolerance the row is off under ``rule``."""
    tolerance = row.tolerance * _heat(view.world, rule)
    return min(times_tolerance(row.got, given, tolerance) for given in _given_by(view, row, rule))


def _given_by(view: StepView, row: _Compared, rule: Rule) -> Iterator[torch.Tensor]:
    """What ``rule`` may give the row, float64 [count, heads, dim]."""
    if view.world.wrapper != "tbo":
        yield _expected(view, row.tap, row.row, rule)
        return
    # A request may be split over both halves of the batch, one or both of which go wrong.
    is_right = _beyond(row.got, row.wanted, row.tolerance).flatten(1).amax(dim=1) <= 0
    for split in range(row.row.count if rule.sees_future else 1):
        given = _expected(view, row.tap, row.row, replace(rule, split=split))
        yield torch.where(is_right[:, None, None], row.wanted, given)


def _heat(world: World, rule: Rule) -> float:
    """How many times as far apart logits are under ``rule`` as they ought to be, and with them what is rounded."""
    scale = world.kv_scales[0]
    return max(1.0, {"": 1.0, "unscaled": 1 / scale}.get(rule.pool, scale))


def _how_far(view: StepView, worst: _Compared, rule: Rule) -> dict[str, str]:
    """Evidence: how many times its tolerance the output is off, and how many times nearer to what ``rule`` gives."""
    found = {TIMES_TOLERANCE: f"{times_tolerance(worst.got, worst.wanted, worst.tolerance):.3g}"}
    if rule != Rule():
        error = float((worst.got - worst.wanted).abs().max())
        residue = min(float((worst.got - given).abs().max()) for given in _given_by(view, worst, rule))
        found[TIMES_NEARER] = f"{error / residue if residue else math.inf:.3g}"
    return found


def _expected(view: StepView, tap: Tap, row: RowPlan, rule: Rule) -> torch.Tensor:
    """float64 [count, heads, dim]: attention of the row's queries over its committed KV and its own new KV."""
    if rule.knows_no_encoder:
        return _without_encoder(view, tap, row)
    world, heads = view.world, view.world.num_kv_heads
    layer = layer_of(world, tap.layer_index, on_draft=view.plan.on_draft)
    has_sinks = world.sinks and not view.plan.on_draft and rule.sinks_counted
    histories = row.live.draft if view.plan.on_draft else row.live.target
    held = _held(view, tap, row, rule) if rule.pool else histories[tap.layer_index]
    history = held.first(row.prefix)
    rows = slice(row.start, row.start + row.count)
    k = tap.k.reshape(len(tap.k), heads, world.head_dim)[row.given(layer)]
    v = tap.v.reshape(len(tap.v), heads, world.v_dim)[row.given(layer)]
    if rule.pool and not rule.own_as_given and not layer.is_cross:
        k, v = held.k[row.prefix :], held.v[row.prefix :]
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
    """The same as `_expected` where a backend takes the first entries of the request's row for those of its own tokens."""
    world, layer = view.world, layer_of(view.world, tap.layer_index)
    length = row.prefix + row.count - row.encoder
    held = _held(view, tap, replace(row, prefix=length, count=0), Rule())
    q = tap.q.reshape(view.plan.tokens, world.num_heads, world.head_dim)[row.start : row.start + row.count]
    seen = torch.ones(row.count, length, dtype=torch.bool) if layer.is_cross else visible(row.count, length)
    return attend(q, held.k, held.v, scale=layer.scaling, mask=seen)


def _held(view: StepView, tap: Tap, row: RowPlan, rule: Rule) -> History:
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


def _fault(view: StepView, kind: str, compared: _Compared, evidence: dict[str, str]) -> Fault:
    row, got, wanted = compared.row, compared.got, compared.wanted
    wrong = torch.isnan(got) if kind == "nan" else (got - wanted).abs()
    is_fill = compared.is_fill_alone
    error = wrong.double().amax(dim=(1, 2))[: row.count - (0 if is_fill else row.fill)]
    token = int(error.argmax())
    leaf, what = type(view.leaf).__name__, kind.replace("_", " ")
    size = "NaN" if kind == "nan" else f"{float(error.max()):.3g}"
    return Fault(
        Signature("numeric", kind, f"{leaf}.{view.method}"),
        f"{view.plan.mode} on {leaf}: {what}",
        f"largest error {size} in {view.world.dtype}, layer {compared.tap.layer_index}, request {row.live.request_id}, "
        f"its token {token} of {row.count} after {row.prefix} in KV{FILL_ALONE if is_fill else ''}",
        {
            "tolerance": str(compared.tolerance),
            **evidence,
            "got": str(got[token].flatten()[:4].tolist()),
            "wanted": str(wanted[token].flatten()[:4].tolist()),
            "sliding_window": str(view.world.sliding_window),
            "attention_chunk_size": str(view.world.attention_chunk_size),
            "logit_cap": str(view.world.logit_cap),
            "temperature_len": str(view.world.xai_temperature_len),
        },
    )
