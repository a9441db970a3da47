"""What of a trace is kept."""

from __future__ import annotations

from fuzz.finding import Finding, Signature, Verdict
from fuzz.outcome import not_run, noteworthy, with_outcome
from fuzz.trace import Step, Trace
from tests.fuzz.test_store import RECORD


def finding(verdict: Verdict, op_index: int, message: str = "a\nb") -> Finding:
    return Finding(verdict, Signature("contract", verdict.value, f"at{op_index}"), "title", message, op_index, "decode")


def trace(*findings: Finding) -> Trace:
    steps = (Step(0, "extend", Verdict.OK, 0.1, {}), Step(1, "decode", Verdict.BUG, 0.1, {}))
    return Trace(steps, findings, 0.25, "9.1")


def noted(*findings: Finding) -> list[str]:
    return [str(one.signature) for one in noteworthy(trace(*findings))]


def test_bug_after_a_stub_gap_is_not_believed() -> None:
    gap, before, after = finding(Verdict.STUB_GAP, 2), finding(Verdict.BUG, 1), finding(Verdict.BUG, 2)
    assert noted(before, gap, after) == ["contract/bug/at1", "contract/stub_gap/at2"]


def test_refusals_are_not_noted() -> None:
    assert noted(finding(Verdict.UNSUPPORTED, 0)) == []


def test_record_names_the_first_finding_of_the_worst_verdict() -> None:
    record = with_outcome(RECORD, trace(finding(Verdict.BUG, 1), finding(Verdict.INFRA, 3), finding(Verdict.INFRA, 4)))
    assert (record.verdict, record.signature, record.reason) == ("infra", "contract/infra/at3", "a b")
    assert record.steps == (("decode", "bug", 1), ("extend", "ok", 1))
    assert record.seconds == 0.25


def test_record_of_a_program_that_was_not_run() -> None:
    record = with_outcome(RECORD, not_run("the worker is gone"))
    assert (record.verdict, record.reason, record.steps) == ("infra", "the worker is gone", ())
