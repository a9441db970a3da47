"""Graph oracle (part of state): a step replayed from a captured graph does what the same step does without one.

Checks the live rows that each layer gave against an eager run of the step on a fresh backend, NaN where the replay
wrote nothing, and that the host read no tensor while a graph was captured, which no stream under capture allows. The
eager run itself is judged by the numeric oracle: where it alone is wrong, the replay is not to blame. Does not compare
rows of padding, nor bits: kernels split long rows by the size of the batch, padding included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from fuzz.finding import TIMES_TOLERANCE, Signature
from fuzz.oracle.numeric import what_is_wrong
from fuzz.oracle.rule import UNEXPLAINED
from fuzz.oracle.tolerance import times_tolerance, tolerance_of
from fuzz.oracle.view import Fault, StepView
from fuzz.place import innermost
from stubs.graph import HostRead


def replay_equals_eager(view: StepView) -> list[Fault]:
    """The worst deviation of a replay from its eager run, beyond what both may deviate from the truth."""
    if not view.replayed or view.rerun is None:
        return []
    eager, _ = view.rerun()
    tolerance = 2 * tolerance_of(view)  # each run has one
    worst = ("", 0.0, "")
    for replayed, plain in zip(view.taps, eager, strict=True):
        got, wanted = replayed.on_host.out.double(), plain.on_host.out.double()
        unwritten = torch.isnan(got) & ~torch.isnan(wanted)
        if bool(unwritten.any()):
            rows = unwritten.flatten(1).any(dim=1).nonzero().flatten().tolist()
            return [
                _fault(view, "replay_unwritten", f"layer {replayed.layer_index}: rows {rows[:8]} of {len(got)} are NaN")
            ]
        excess = (got - wanted).abs() - tolerance * (1 + wanted.abs())
        beyond = float(torch.nan_to_num(excess, nan=-1.0).max())
        if beyond > worst[1]:
            error = torch.nan_to_num((got - wanted).abs()).flatten(1).amax(dim=1)
            row = int(error.argmax())
            worst = (
                f"layer {replayed.layer_index}: largest error {float(error[row]):.3g}, row {row} of {len(got)}",
                beyond,
                f"{times_tolerance(got, wanted, tolerance):.3g}",
            )
    detail, _, times = worst
    if not detail:
        return []
    wrong = what_is_wrong(view)
    if not wrong:
        return []  # the replay is right, and the eager run is not
    without_graph = what_is_wrong(replace(view, taps=eager))
    kinds = [kind for kind in wrong if kind != UNEXPLAINED and kind not in without_graph]
    evidence = {TIMES_TOLERANCE: times}
    return [_fault(view, f"replay_{kind}", detail, evidence) for kind in kinds or ["differs"]]


_SAID = {
    "replay_unwritten": "leaves rows unwritten",
    "replay_differs": "gives other output than an eager run",
}


def _fault(view: StepView, kind: str, detail: str, evidence: dict[str, str] | None = None) -> Fault:
    leaf = type(view.leaf).__name__
    rule = kind.removeprefix("replay_").replace("_", " ")
    what = _SAID.get(kind, f"gives other output than an eager run: {rule}")
    lengths = [(row.prefix, row.count) for row in view.plan.rows]
    return Fault(
        Signature("state", kind, view.place),
        f"{view.plan.mode} on {leaf}: the replayed graph {what}",
        f"{detail}; requests have (prefix, new tokens) {lengths[:8]}, padded to {view.plan.padded_size}",
        evidence or {},
    )


def host_reads(reads: Iterable[HostRead]) -> list[Fault]:
    """One fault for each place in SGLang that read a tensor on the host while a graph was captured."""
    faults: dict[Signature, Fault] = {}
    for read in reads:
        place = innermost(read.stack)
        signature = Signature("state", "host_read_in_capture", place)
        title = f"{place} reads a tensor on the host while a graph is captured ({read.operation})"
        where = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in read.stack[-8:]]
        faults.setdefault(signature, Fault(signature, title, "\n".join(where)))
    return list(faults.values())
