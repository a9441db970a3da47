"""Numeric oracle: each attention output against float64 dense attention over what the request's KV ought to hold.

Checks values and NaN of every live row. Does not check rows of padding, nor logits.
"""

from __future__ import annotations

import torch

from fuzz.finding import Signature
from fuzz.oracle.view import Fault, StepView
from stubs.batch import RowPlan
from stubs.reference import TOLERANCES, attend
from stubs.sglang import DTYPES
from stubs.tap import Tap


def matches_reference(view: StepView) -> list[Fault]:
    """The worst deviation of the step, if it is beyond the dtype's tolerance (atol = rtol)."""
    worst: tuple[float, RowPlan, Tap, torch.Tensor, torch.Tensor] | None = None
    tolerance = TOLERANCES[DTYPES[view.world.dtype]]
    for tap in view.taps:
        out = tap.out.reshape(view.plan.tokens, view.world.num_heads, view.world.head_dim).double()
        for row in view.plan.rows:
            got = out[row.start : row.start + row.count]
            wanted = _expected(view, tap, row)
            if bool(torch.isnan(got).any()):
                return [_fault(view, "nan", tap, row, got, wanted, "NaN")]
            excess = float(((got - wanted).abs() - tolerance * (1 + wanted.abs())).max())
            if excess > 0 and (worst is None or excess > worst[0]):
                worst = (excess, row, tap, got, wanted)
    if worst is None:
        return []
    _, row, tap, got, wanted = worst
    return [_fault(view, "wrong_output", tap, row, got, wanted, f"{float((got - wanted).abs().max()):.3g}")]


def _expected(view: StepView, tap: Tap, row: RowPlan) -> torch.Tensor:
    """float64 [count, heads, dim]: attention of the row's queries over its committed KV and its own new KV."""
    world = view.world
    heads = world.num_kv_heads
    histories = row.live.draft if view.plan.on_draft else row.live.target
    history = histories[tap.layer_index].first(row.prefix)
    rows = slice(row.start, row.start + row.count)
    k, v = (t.reshape(view.plan.tokens, heads, -1)[rows] for t in (tap.k, tap.v))
    mask = None
    if row.tree is not None:
        mask = torch.ones(row.count, row.prefix + row.count, dtype=torch.bool)
        mask[:, row.prefix :] = row.tree
    return attend(
        tap.q.reshape(view.plan.tokens, world.num_heads, -1)[rows],
        torch.cat([history.k, k]),
        torch.cat([history.v, v]),
        scale=world.head_dim**-0.5,
        mask=mask,
        window=world.sliding_window if world.sliding_window and mask is None else -1,
        logit_cap=float(world.logit_cap),
    )


def _fault(
    view: StepView, kind: str, tap: Tap, row: RowPlan, got: torch.Tensor, wanted: torch.Tensor, size: str
) -> Fault:
    tolerance = TOLERANCES[DTYPES[view.world.dtype]]
    error = (got - wanted).abs().amax(dim=(1, 2)) if kind != "nan" else torch.isnan(got).any(dim=2).any(dim=1).double()
    token = int(error.argmax())
    return Fault(
        Signature("numeric", kind, view.place),
        f"{view.plan.mode} on {type(view.leaf).__name__} gives {'NaN' if kind == 'nan' else 'a wrong output'}",
        f"largest error {size} in {view.world.dtype}, layer {tap.layer_index}, request {row.live.request_id}, "
        f"its token {token} of {row.count} after {row.prefix} in KV",
        {
            "tolerance": str(tolerance),
            "got": str(got[token].flatten()[:4].tolist()),
            "wanted": str(wanted[token].flatten()[:4].tolist()),
            "rows_wrong": str(int((error > tolerance).sum())),
        },
    )
