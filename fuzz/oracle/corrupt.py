"""Corrupt oracle: what became of a step that was run once more with one thing wrong in its input.

Checks that SGLang raised, or that the uncorrupted step's answer and KV came out all the same. What was taken without a
word and went wrong is a finding, apart from those on valid programs; so is what only the checked kernels noticed. Does
not look at steps whose uncorrupted run was at fault, at replayed ones, nor at the draft model's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fuzz.finding import CORRUPT, Signature, Verdict
from fuzz.oracle.bounds import guards_intact, out_of_bounds
from fuzz.oracle.contract import Judgement, judge
from fuzz.oracle.numeric import matches_reference
from fuzz.oracle.state import kv_written_where_told, restore_kv
from fuzz.oracle.view import Fault, StepView, Strays
from stubs.corrupted_step import NotApplicable, corrupt
from stubs.corruption import CORRUPTIONS
from stubs.interpreter_log import Violation
from stubs.plan import StepPlan
from stubs.slots import kv_buffers
from stubs.tap import Tap

# What can become of a corrupted step. CAUGHT: SGLang took it, and our checked kernels or stand-ins noticed.
REFUSED, CORRECT, SILENT, CAUGHT = "refused", "correct", "silent", "caught"
NOT_APPLICABLE, UNJUDGED = "not applicable", "unjudged"
# Our code that stands where the GPU's memory and closed kernels are: what it cannot work with, they were given.
_KERNELS = ("stubs.kernels.", "stubs.interpreter")

# Runs a step's layers on a fresh wrapper: the taps. What kernels did meanwhile is asked for afterwards.
Run = Callable[[StepPlan, Sequence[Tap]], Sequence[Tap]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """``detail`` is who refused, what is wrong, or why nothing was tried. ``gap``: the harness's own trouble."""

    name: str
    outcome: str
    detail: str = ""
    gap: Judgement | None = None

    @property
    def told(self) -> dict[str, str]:
        """For the trace."""
        return {"name": self.name, "outcome": self.outcome, "detail": self.detail}

    def faults(self, view: StepView) -> list[Fault]:
        """The finding that it is, if it is one."""
        if self.outcome not in (SILENT, CAUGHT):
            return []
        leaf, corruption = type(view.leaf).__name__, CORRUPTIONS[self.name]
        how = "with a wrong answer" if self.outcome == SILENT else "and kernels are called wrongly"
        return [
            Fault(
                Signature(CORRUPT, self.name, f"{leaf}.{view.method}"),
                f"{view.plan.mode} on {leaf} goes on, {how}, though {corruption.what}",
                self.detail,
                {"outcome": self.outcome, "expected": corruption.expected},
            )
        ]


def outcome_of(view: StepView, name: str, run: Run, violations: list[Violation]) -> Outcome:
    """Run ``view``'s step again, corrupted, and leave pool and rows as they ought to be after the uncorrupted one.

    ``run`` adds what kernels did to ``violations``, which is empty.
    """
    if not view.world.save_kv_cache:
        return Outcome(name, NOT_APPLICABLE, "the model writes K and V, and the layers are given none")
    table = view.plan.runner.req_to_token_pool.req_to_token
    rows = table.clone()
    try:
        plan, given = corrupt(name, view.plan, view.taps)
        for buffer, before in zip(kv_buffers(view.plan.runner.token_to_kv_pool), view.kv_before, strict=True):
            buffer.copy_(before)
        try:
            taps = run(plan, given)
        except Exception as error:  # noqa: BLE001 - the boundary: what the target raises is data
            return _raised(name, error, violations)
        return _judged(view, name, taps, violations)
    except NotApplicable as reason:
        return Outcome(name, NOT_APPLICABLE, str(reason))
    finally:
        table.copy_(rows)
        restore_kv(view)


def _raised(name: str, error: Exception, violations: Sequence[Violation]) -> Outcome:
    """SGLang's exception is a refusal, unless a kernel had gone astray before."""
    if violations:
        return Outcome(name, CAUGHT, str(violations[0]))
    judgement = judge(error)
    is_kernels = judgement.signature.place.startswith(_KERNELS)
    if judgement.signature.oracle == "bounds" or (judgement.verdict is Verdict.INFRA and is_kernels):
        return Outcome(name, CAUGHT, judgement.title)
    if judgement.verdict in (Verdict.STUB_GAP, Verdict.INFRA):
        return Outcome(name, UNJUDGED, judgement.title, judgement)
    return Outcome(name, REFUSED, judgement.title)


def _judged(view: StepView, name: str, taps: Sequence[Tap], violations: Sequence[Violation]) -> Outcome:
    """By the uncorrupted step's own truth."""
    strays = out_of_bounds(Strays(violations), view.plan.mode)
    if strays:
        return Outcome(name, CAUGHT, strays[0].title)
    for tap, clean in zip(taps, view.taps, strict=True):
        if tap.out.numel() != clean.out.numel():
            return Outcome(name, SILENT, f"an output of {list(tap.out.shape)}, not {list(clean.out.shape)}")
    outs = [replace(clean, out=tap.out) for tap, clean in zip(taps, view.taps, strict=True)]
    seen = replace(view, taps=outs, rerun=None)
    written = guards_intact(seen)
    if written:
        return Outcome(name, CAUGHT, written[0].message)
    wrong = [*matches_reference(seen), *kv_written_where_told(seen)]
    return Outcome(name, SILENT, f"{wrong[0].title}: {wrong[0].message}") if wrong else Outcome(name, CORRECT)
