"""Counts of a campaign."""

from __future__ import annotations

from dataclasses import replace

from fuzz.finding import Finding, Signature, Verdict
from fuzz.tally import Tally
from tests.fuzz.test_store import RECORD

SIGNATURE = "contract/KeyError/f"
FINDING = Finding(Verdict.BUG, Signature.parse(SIGNATURE), "title", "message", 1, "decode")
BUG = replace(RECORD, verdict="bug", steps=(("decode", "bug", 1), ("extend", "ok", 2)))


def test_programs_and_steps() -> None:
    tally = Tally()
    tally.count_program(BUG)
    tally.count_program(BUG)
    assert (tally.programs, tally.steps, tally.verdicts) == (2, 6, {"bug": 2})


def test_first_sight_gives_the_entry() -> None:
    tally = Tally(programs=5)
    entry = tally.count_finding(FINDING, BUG, "text")
    assert entry is not None
    assert entry["program"] == "text"
    assert (entry["pair"], entry["seed"], entry["program_hash"]) == ("triton:torch_native", 7, "abcd")
    assert (entry["first_seconds"], entry["first_programs"], entry["count"]) == (2.0, 5, 1)
    assert (entry["reliability"], entry["script"], entry["known"]) == ([0, 0], "", False)


def test_second_sight_is_counted() -> None:
    tally = Tally()
    tally.count_finding(FINDING, BUG, "text")
    assert tally.count_finding(FINDING, BUG, "other") is None
    assert (tally.findings[SIGNATURE]["count"], tally.findings[SIGNATURE]["program"]) == (2, "text")


def test_known_bugs_are_not_new() -> None:
    known, unknown = Tally(known={SIGNATURE: "why"}), Tally()
    known.count_finding(FINDING, BUG, "text")
    unknown.count_finding(FINDING, BUG, "text")
    assert (len(known.new_bugs), len(unknown.new_bugs)) == (0, 1)


def test_bugs_of_an_earlier_campaign_are_not_this_ones() -> None:
    earlier = Tally()
    earlier.count_finding(FINDING, BUG, "text")
    assert Tally(findings=earlier.findings).new_bugs == []


def test_stub_gaps_are_no_bugs() -> None:
    tally = Tally()
    tally.count_finding(replace(FINDING, verdict=Verdict.STUB_GAP), BUG, "text")
    assert tally.new_bugs == []


def test_refusals_and_faults_of_the_harness_test_nothing() -> None:
    tally = Tally()
    for verdict in ("unsupported", "infra", "stub_gap"):
        tally.count_program(replace(RECORD, verdict=verdict))
    assert not tally.ran_something
    tally.count_program(replace(RECORD, verdict="ok"))
    assert tally.ran_something


def test_a_mode_is_reached_where_a_step_of_it_ran() -> None:
    tally = Tally()
    tally.count_program(replace(BUG, steps=(("decode", "bug", 1), ("extend", "ok", 2), ("verify", "unsupported", 1))))
    assert tally.reached == {("triton:torch_native", "decode"), ("triton:torch_native", "extend")}
