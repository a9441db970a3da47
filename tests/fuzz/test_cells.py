"""The programs that are made for each cell of the table, and what their traces say of it."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.cells import CELLS, Attempt, Cell, attempts, reason_of, settle, try_cells
from fuzz.finding import Finding, Signature, Verdict
from fuzz.ledger import check
from fuzz.program import Program
from fuzz.trace import Step, Trace


def trace(*steps: tuple[str, Verdict], **finding: Any) -> Trace:
    """Steps by mode, and one finding if any."""
    made = tuple(Step(0, mode, verdict, 0.0, {}) for mode, verdict in steps)
    place = Signature("contract", "refused", "start-up")
    findings = (Finding(finding["verdict"], place, finding["title"], "", 0, "extend", {}),) if finding else ()
    return Trace(made, findings, 0.0, "0.5.23")


def attempt(*modes: str) -> Attempt:
    return Attempt(next(attempts("a:b", "cpu")).program, modes)


@pytest.mark.parametrize("pair", ["triton:fa3", "trtllm_mha:triton"])
def test_attempts_are_programs_a_scheduler_could_run(pair: str) -> None:
    for one in attempts(pair, "cpu"):
        check(one.program)


def test_attempts_come_to_every_cell() -> None:
    assert {mode for one in attempts("triton:fa3", "cpu") for mode in one.modes} == set(CELLS)


def test_a_mode_that_ran_is_ok() -> None:
    found: dict[str, Cell] = {}
    settle(found, attempt("decode"), trace(("decode", Verdict.OK)))
    assert found == {"decode": Cell("ok")}


def test_a_refused_start_is_the_reason_of_all_its_modes() -> None:
    found: dict[str, Cell] = {}
    settle(found, attempt("decode", "idle"), trace(verdict=Verdict.UNSUPPORTED, title="no such\n backend"))
    assert found == {"decode": Cell("unsupported", "no such backend"), "idle": Cell("unsupported", "no such backend")}


def test_a_step_after_a_fault_is_behind_it() -> None:
    found: dict[str, Cell] = {}
    settle(found, attempt("extend", "decode"), trace(("extend", Verdict.BUG), verdict=Verdict.BUG, title="it broke"))
    assert found == {"extend": Cell("bug", "it broke"), "decode": Cell("behind", "it broke")}


@pytest.mark.parametrize(
    "of_eager",
    [trace(("draft_extend", Verdict.OK)), trace(("draft_extend", Verdict.BUG), verdict=Verdict.BUG, title="it broke")],
)
def test_a_graph_that_is_not_captured_says_what_runs_instead_sound_or_not(of_eager: Trace) -> None:
    found: dict[str, Cell] = {}
    settle(found, attempt("draft_extend_graph"), of_eager)
    reason = "SGLang captures no graph of it, and runs draft_extend"
    assert found == {"draft_extend_graph": Cell("unsupported", reason)}


def test_a_graph_of_what_is_refused_has_the_reason() -> None:
    found: dict[str, Cell] = {}
    refused = trace(("draft_extend", Verdict.UNSUPPORTED), verdict=Verdict.UNSUPPORTED, title="no drafts")
    settle(found, attempt("draft_extend_graph"), refused)
    assert found == {"draft_extend_graph": Cell("unsupported", "no drafts")}


def test_what_runs_in_any_attempt_runs() -> None:
    found = {"decode": Cell("unsupported", "not so")}
    settle(found, attempt("decode"), trace(("decode", Verdict.OK)))
    assert found == {"decode": Cell("ok")}


def test_the_first_reason_stays() -> None:
    found = {"decode": Cell("unsupported", "not so")}
    settle(found, attempt("decode"), trace(verdict=Verdict.UNSUPPORTED, title="nor so"))
    assert found == {"decode": Cell("unsupported", "not so")}


def test_one_step_of_drafting_is_tried_where_two_did_not_run() -> None:
    steps = []

    def run(program: Program) -> Trace:
        steps.append(program.world.spec_steps)
        return trace(verdict=Verdict.UNSUPPORTED, title="no")

    assert {cell.state for cell in try_cells("a:b", "cpu", run).values()} == {"unsupported"}
    assert steps == [
        0,
        0,
        0,
        0,
        0,
        *[2, 1, 2, 1, 2, 1, 1] * 2,
    ]  # of blocks one; and no graph of what is refused without one


def test_an_exception_for_a_refusal_is_named() -> None:
    place = Signature("contract", "NotImplementedError", "Base.graph")
    finding = Finding(Verdict.UNSUPPORTED, place, "Base.graph", "", 0, "start-up", {})
    assert reason_of(finding) == "NotImplementedError in Base.graph"
