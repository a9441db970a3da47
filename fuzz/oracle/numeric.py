"""Numeric oracle: each attention output against float64 dense attention over what the request's KV ought to hold.

Checks values and NaN of every live row, and says which wrong rule would explain a wrong output (a window that is
ignored, one token too few, ...), so that faults of different causes get different names. Nodes that fill a draft's tree
up are checked, since SGLang may accept them; a fault that shows in them alone says so. Does not check rows of padding,
nor logits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from fuzz.finding import TIMES_NEARER, TIMES_TOLERANCE, Signature
from fuzz.oracle.rule import (
    ENCODER_EXPLANATIONS,
    EXPLANATIONS,
    SCALE_EXPLANATIONS,
    SEVERAL_LEFT_OUT,
    Rule,
    of_chunks,
)
from fuzz.oracle.tolerance import beyond, heat, rounding_share, times_tolerance, tolerance_of
from fuzz.oracle.truth import expected
from fuzz.oracle.view import Fault, StepView
from stubs.plan import RowPlan
from stubs.tap import Tap

FAR_NEARER = 100.0
FP8_NEARER = 4.0  # a rule over KV in fp8: whose tolerance alone would let much pass, and one of scales for another
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
        """How far the worst element lies beyond the tolerance; at most 0 where all are within it."""
        return float(beyond(self.got, self.wanted, self.tolerance).max())

    @property
    def is_fill_alone(self) -> bool:
        """Whether what is wrong are nodes alone that fill a tree up."""
        is_right = (beyond(self.got, self.wanted, self.tolerance) <= 0).flatten(1).all(dim=1)
        return bool(is_right[: self.row.count - self.row.fill].all())


def _compared(view: StepView) -> Iterator[_Compared]:
    tolerance = tolerance_of(view)
    for tap in (tap.on_host for tap in view.taps):
        out = tap.out.reshape(view.plan.tokens, view.world.num_heads, view.world.v_dim).double()
        for row in view.plan.rows:
            got = out[row.start : row.start + row.count]
            yield _Compared(tap, row, got, expected(view, tap, row, Rule()), tolerance)


def what_is_wrong(view: StepView) -> tuple[str, ...]:
    """The kinds of what the step's outputs have wrong; none where they are right."""
    wrong = [row for row in _compared(view) if _is_wrong(view, row)]
    return _explanation(view, wrong).kinds if wrong else ()


def _is_wrong(view: StepView, row: _Compared) -> bool:
    """Whether the row is right neither with its own KV as the pool holds it nor as it was given: backends read either."""
    return row.excess > 0 and not any(_left_by(view, row, rule) <= 1 for rule in _rounded_otherwise(view, Rule()))


def _explanation(view: StepView, wrong: list[_Compared]) -> Rule:
    """The wrong rule under which every wrong row is right, else the right one.

    It is the first with one thing wrong, or the nearest with the fewest, or one of scales that is nearer than that. A
    rule with more things wrong than another is FP8_NEARER times as near, else the other has the name.
    """
    worst = _worst(wrong)

    def explaining(kinds: Sequence[Rule]) -> Iterator[Rule]:
        return (rule for rule in _rules(view, kinds) if _is_explained(view, wrong, rule))

    def distance(rule: Rule) -> float:
        return _residue(view, worst, rule)

    first = next(explaining(_with_one_thing_wrong(view)), None)
    if first is None:
        first = min(explaining(SEVERAL_LEFT_OUT), key=lambda rule: (len(rule.kinds), distance(rule)), default=Rule())
    of_scales = _of_scales(view, wrong) if view.world.kv_scale else None
    if of_scales is None or first == Rule():
        return of_scales or first
    fewer, more = sorted((of_scales, first), key=lambda rule: len(rule.kinds))
    times = FP8_NEARER if len(fewer.kinds) < len(more.kinds) else 1
    return more if times * distance(more) < distance(fewer) else fewer


def _with_one_thing_wrong(view: StepView) -> tuple[Rule, ...]:
    of_encoders = ENCODER_EXPLANATIONS if view.world.encoder_decoder else ()
    return EXPLANATIONS + of_chunks(view.world.attention_chunk_size) + of_encoders


def _rules(view: StepView, kinds: Sequence[Rule]) -> Iterator[Rule]:
    """Those of ``kinds`` that the world has, each with the roundings that are right as well."""
    for kind in (one for one in kinds if view.world.kv_scale or not one.pool):
        yield kind
        yield from _rounded_otherwise(view, kind)


def _worst(wrong: list[_Compared]) -> _Compared:
    return max(wrong, key=lambda row: row.excess)


def _is_explained(view: StepView, wrong: list[_Compared], rule: Rule) -> bool:
    """Whether every wrong row is within its tolerance under ``rule``, and at rounding level or far nearer than to the truth."""
    most = 0.0
    for row in wrong:
        most = max(most, _left_by(view, row, rule))
        if most > 1:
            return False
    if view.world.kv_dtype != "auto":
        return _is_nearer(view, _worst(wrong), rule)
    error = max(times_tolerance(row.got, row.wanted, row.tolerance) for row in wrong)
    return most <= rounding_share(view.world) or error >= FAR_NEARER * most


def _is_nearer(view: StepView, row: _Compared, rule: Rule) -> bool:
    """Whether the row is FP8_NEARER times as near to what ``rule`` gives as to the truth."""
    return FP8_NEARER * _residue(view, row, rule) <= float((row.got - row.wanted).abs().max())


def _of_scales(view: StepView, wrong: list[_Compared]) -> Rule | None:
    """Which of SCALE_EXPLANATIONS explains every wrong row, and the worst FP8_NEARER times as near as the truth does."""
    worst = _worst(wrong)
    rules = (rule for kind in SCALE_EXPLANATIONS for rule in (kind, *_rounded_otherwise(view, kind)))
    found = (
        rule for rule in rules if _is_nearer(view, worst, rule) and all(_left_by(view, row, rule) <= 1 for row in wrong)
    )
    return min(found, key=lambda rule: _residue(view, worst, rule), default=None)


def _rounded_otherwise(view: StepView, rule: Rule) -> Iterator[Rule]:
    """``rule`` over the step's own KV as it was given, where a pool of fp8 rounds it; and with queries rounded so as well."""
    if view.world.kv_dtype != "auto":
        yield replace(rule, own_as_given=True)
        yield replace(rule, q_rounded=True)
        yield replace(rule, own_as_given=True, q_rounded=True)


def _left_by(view: StepView, row: _Compared, rule: Rule) -> float:
    """How many times its tolerance the row is off under ``rule``."""
    tolerance = row.tolerance * heat(view.world, rule)
    return min(times_tolerance(row.got, given, tolerance) for given in _given_by(view, row, rule))


def _residue(view: StepView, row: _Compared, rule: Rule) -> float:
    return min(float((row.got - given).abs().max()) for given in _given_by(view, row, rule))


def _given_by(view: StepView, row: _Compared, rule: Rule) -> Iterator[torch.Tensor]:
    """What ``rule`` may give the row, float64 [count, heads, dim]."""
    if view.world.wrapper != "tbo":
        yield expected(view, row.tap, row.row, rule)
        return
    # A request may be split over both halves of the batch, one or both of which go wrong.
    is_right = beyond(row.got, row.wanted, row.tolerance).flatten(1).amax(dim=1) <= 0
    for split in range(row.row.count if rule.sees_future else 1):
        given = expected(view, row.tap, row.row, replace(rule, split=split))
        is_truth = is_right & (_farthest(row.got, row.wanted) <= _farthest(row.got, given))
        yield torch.where(is_truth[:, None, None], row.wanted, given)


def _farthest(got: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """By how much each token is off, [count]."""
    return (got - other).abs().flatten(1).amax(dim=1)


def _how_far(view: StepView, worst: _Compared, rule: Rule) -> dict[str, str]:
    """Evidence: how many times its tolerance the output is off, and how many times nearer to what ``rule`` gives."""
    found = {TIMES_TOLERANCE: f"{times_tolerance(worst.got, worst.wanted, worst.tolerance):.3g}"}
    if rule != Rule():
        error = float((worst.got - worst.wanted).abs().max())
        residue = _residue(view, worst, rule)
        found[TIMES_NEARER] = f"{error / residue if residue else math.inf:.3g}"
    return found


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
