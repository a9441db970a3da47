"""Behind a name that a wrapper forgot and its child has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuzz.finding import Finding, Signature, Verdict
from fuzz.trace import Step, Trace
from fuzz.unmask import Supply, past_masks, supplied, supply_for


class Backend:
    pass


class Child(Backend):
    width = 7

    def plan(self) -> str:
        return "planned"


class Wrapper(Backend):
    def __init__(self) -> None:
        self.settings = Settings()
        self.first, self.second = Backend(), Child()

    @property
    def broken(self) -> int:
        return int(self.width)  # type: ignore[attr-defined]


class Settings:
    width = 3


class Alone:
    def __init__(self) -> None:
        self.child = Child()


def error_of(read: Callable[[], object]) -> BaseException:
    with pytest.raises(AttributeError) as caught:
        read()
    return caught.value


def test_child_that_has_it_is_named() -> None:
    supply = supply_for(error_of(lambda: Wrapper().width))  # type: ignore[attr-defined]
    assert supply == Supply(Wrapper, "width", "second")
    assert str(supply).endswith("test_unmask.Wrapper.width from second")


@pytest.mark.parametrize(
    "error",
    [
        error_of(lambda: Wrapper().nobody_has_it),  # type: ignore[attr-defined]
        error_of(lambda: Alone().width),  # type: ignore[attr-defined]
        error_of(lambda: Wrapper.width),  # type: ignore[attr-defined]
        AttributeError("said by hand"),
        KeyError("width"),
    ],
    ids=["nobody has it", "no kin", "read off the class", "without an object", "another error"],
)
def test_anything_else_needs_no_supply(error: BaseException) -> None:
    assert supply_for(error) is None


def test_classes_answer_meanwhile_and_no_longer() -> None:
    with supplied([Supply(Wrapper, "width", "second"), Supply(Wrapper, "plan", "second")]):
        wrapper = Wrapper()
        assert (wrapper.width, wrapper.plan()) == (7, "planned")  # type: ignore[attr-defined]
        wrapper.width = 9  # type: ignore[attr-defined]
        assert (wrapper.width, hasattr(Wrapper, "width")) == (9, False)  # type: ignore[attr-defined]
    assert not hasattr(Wrapper(), "width")


def finding(kind: str, op_index: int = 1, verdict: Verdict = Verdict.BUG) -> Finding:
    return Finding(verdict, Signature("contract", kind, "place"), kind, "message", op_index, "decode")


def trace(*findings: Finding, steps: int = 2) -> Trace:
    return Trace(tuple(Step(i, "decode", Verdict.OK, 0.0, {}) for i in range(steps)), findings, 1.0, "9.1")


WIDTH = Supply(Wrapper, "width", "second")
PLAN = Supply(Wrapper, "plan", "second")


def runs(*answers: tuple[Trace, Supply | None]) -> Callable[[], tuple[Trace, Supply | None]]:
    """Answer by answer; one too many is an error."""
    left = list(answers)
    return lambda: left.pop(0)


def test_nothing_masked_runs_once() -> None:
    clean = trace()
    assert past_masks(runs((clean, None))) == clean


def test_what_lies_behind_says_what_it_needed_and_the_mask_is_kept() -> None:
    joined = past_masks(runs((trace(finding("mask")), WIDTH), (trace(finding("behind", 2), steps=3), None)))
    assert [one.signature.kind for one in joined.findings] == ["mask", "behind"]
    assert joined.findings[0].evidence == {}
    assert joined.findings[1].evidence == {"needs": str(WIDTH)}
    assert [step.verdict for step in joined.steps] == [Verdict.OK, Verdict.BUG, Verdict.BUG]
    assert joined.seconds == 2.0


def test_one_mask_behind_another() -> None:
    answers = (
        (trace(finding("mask")), WIDTH),
        (trace(finding("other mask", 2)), PLAN),
        (trace(finding("behind", 3)), None),
    )
    joined = past_masks(runs(*answers))
    assert [one.evidence.get("needs") for one in joined.findings] == [None, str(WIDTH), f"{WIDTH}; {PLAN}"]


def test_name_that_does_not_help_is_supplied_once() -> None:
    joined = past_masks(runs((trace(finding("mask")), WIDTH), (trace(finding("mask")), WIDTH)))
    assert [one.signature.kind for one in joined.findings] == ["mask"]


@pytest.mark.parametrize("verdict", [Verdict.STUB_GAP, Verdict.INFRA, Verdict.UNSUPPORTED])
def test_end_that_is_no_fault_of_the_target_is_told_beside_the_mask(verdict: Verdict) -> None:
    end = finding("end", 2, verdict)
    joined = past_masks(
        runs((trace(finding("mask")), WIDTH), (trace(finding("before", 1), end, finding("after", 3), steps=4), None))
    )
    assert [(one.signature.kind, one.verdict) for one in joined.findings] == [
        ("mask", Verdict.BUG),
        ("before", Verdict.BUG),
    ]
    assert joined.findings[0].evidence == {"behind": f"{verdict.value}: end (with {WIDTH})"}
    assert (joined.verdict, len(joined.steps)) == (Verdict.BUG, 2)
