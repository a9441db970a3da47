"""The steps of a script: what the trace says, and what is guessed for a step that failed before it had a batch."""

from __future__ import annotations

from dataclasses import replace

from fuzz.finding import Verdict
from fuzz.steps import ScriptStep, script_steps
from fuzz.trace import Step
from tests.fuzz.canned import batch, kernel_error, missing_attribute, wrong_output


def test_batches_of_the_trace_are_taken_as_they_are() -> None:
    assert script_steps(*wrong_output()) == (
        ScriptStep("EXTEND", (1, 2), (0, 0), ((4, 5, 6, 7, 8), (12, 13, 14))),
        ScriptStep("DECODE", (1, 2), (5, 3), ((4, 5, 6, 7, 8, 9), (12, 13, 14, 15))),
    )


def test_a_verify_without_a_batch_takes_fresh_slots_and_no_host_lengths() -> None:
    assert script_steps(*missing_attribute())[-1] == ScriptStep("TARGET_VERIFY", (1,), (1,), ((1, 2, 3),), host=False)


def test_a_decode_without_a_batch_goes_on_after_the_highest_slot() -> None:
    assert script_steps(*kernel_error())[-1] == ScriptStep("DECODE", (1,), (2,), ((7, 2, 10),))


def test_a_guess_stays_on_the_last_page_while_it_has_room() -> None:
    program, finding, trace = wrong_output()
    trace = replace(trace, steps=(trace.steps[0], Step(1, "decode", Verdict.BUG, 0.1, {})))
    assert script_steps(program, finding, trace)[-1].slots == ((4, 5, 6, 7, 8, 9), (12, 13, 14, 15))


def test_a_verify_commits_what_was_accepted() -> None:
    program, finding, trace = missing_attribute()
    program = replace(program, ops=(program.ops[0], program.ops[1], program.ops[1]))
    verified = Step(
        1, "verify_chain_prefill", Verdict.OK, 0.1, batch("TARGET_VERIFY", [1], [1], [[1, 2, 3]], host=False)
    )
    trace = replace(trace, steps=(trace.steps[0], verified, replace(trace.steps[2], op_index=2)))
    last = script_steps(program, replace(finding, op_index=2), trace)[-1]
    assert last == ScriptStep("TARGET_VERIFY", (1,), (2,), ((1, 2, 4, 5),), host=False)


def test_a_fault_of_the_start_up_has_no_steps() -> None:
    program, finding, trace = missing_attribute()
    assert script_steps(program, replace(finding, mode="start-up"), trace) == ()
