"""One program on two targets by turns: when a difference is believed, and what stands in the way of believing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle

import pytest

from fuzz.confirm import Patience
from fuzz.duel import Duel, Side, chance, decide, duel
from fuzz.finding import Finding, Signature, Verdict
from fuzz.program import Decode, Extend, Program, Row
from fuzz.trace import Step, Trace
from stubs.world import World

PROGRAM = Program(World(), (Extend((Row(0, 3),)), Decode((0,))))
FAULT = Finding(Verdict.BUG, Signature("contract", "KeyError", "f"), "KeyError at f", "x", 1, "decode")
FOREVER = Patience(1.0, float("inf"))


def trace(*findings: Finding, reached: bool = True) -> Trace:
    verdict = findings[0].verdict if findings else Verdict.OK
    steps = (Step(0, "extend", Verdict.OK, 0.0, {}), Step(1, "decode", verdict, 0.0, {}))
    return Trace(steps if reached else steps[:1], findings, 0.0, "9.1")


SHOWS, CLEAN = trace(FAULT), trace()
GAP = trace(replace(FAULT, verdict=Verdict.STUB_GAP, title="Runner lacks x"))
REFUSED = trace(replace(FAULT, verdict=Verdict.UNSUPPORTED, title="page size 4"))
OTHER = replace(FAULT, signature=Signature("contract", "TypeError", "g"), op_index=0, mode="extend")
STOPPED_EARLIER = trace(OTHER, reached=False)
WENT_ON = replace(CLEAN, findings=(OTHER,))  # a wrong number in the extend; the decode was fine


@dataclass
class Scripted:
    """A runner that hands out these traces by turns."""

    traces: Iterator[Trace]
    renewals: int = 0

    def renew(self) -> None:
        self.renewals += 1

    def run(self, program: Program, timeout_seconds: float) -> Trace:
        return next(self.traces)


def always(*traces: Trace) -> Scripted:
    return Scripted(cycle(traces))


def fight(before: Scripted, after: Scripted) -> Duel:
    return duel(before, after, PROGRAM, FAULT, FOREVER)


@pytest.mark.parametrize(
    ("before", "after", "state", "score"),
    [
        ([CLEAN], [SHOWS], "new", ("0/5", "5/5")),
        ([SHOWS], [CLEAN], "gone", ("5/5", "0/5")),
        ([SHOWS], [SHOWS], "unchanged", ("5/5", "5/5")),
        # Shows in one run of three on both: the first round alone would have told a fix where there is none.
        ([CLEAN] * 6 + [SHOWS] * 3, [SHOWS, CLEAN, CLEAN], "unchanged", ("3/10", "4/10")),
        ([CLEAN], [SHOWS, CLEAN, CLEAN], "new", ("0/20", "7/20")),
        ([CLEAN], [CLEAN], "uncertain", ("0/40", "0/40")),
        ([CLEAN], [SHOWS, *[CLEAN] * 19], "uncertain", ("0/40", "2/40")),
    ],
)
def test_duel(before: list[Trace], after: list[Trace], state: str, score: tuple[str, str]) -> None:
    fought = fight(always(*before), always(*after))
    assert (fought.state, (str(fought.before), str(fought.after))) == (state, score)


def test_each_round_starts_in_fresh_processes() -> None:
    before, after = always(CLEAN), always(SHOWS, CLEAN, CLEAN)
    fight(before, after)
    assert (before.renewals, after.renewals) == (4, 4)


@pytest.mark.parametrize(
    ("before", "state", "detail"),
    [
        (GAP, "uncertain", "the baseline does not get that far: stub_gap: Runner lacks x"),
        (STOPPED_EARLIER, "uncertain", "the baseline does not get that far: contract/TypeError/g comes first"),
        (WENT_ON, "new", ""),
        (REFUSED, "new", "the baseline refuses the program: unsupported: page size 4"),
    ],
)
def test_what_the_silent_side_did_instead(before: Trace, state: str, detail: str) -> None:
    fought = fight(always(before), always(SHOWS))
    assert (fought.state, fought.detail) == (state, detail)


def test_what_stands_in_the_way_is_asked_of_the_target_too() -> None:
    fought = fight(always(SHOWS), always(GAP))
    assert fought.detail == "the target does not get that far: stub_gap: Runner lacks x"


@pytest.mark.parametrize(
    ("after", "detail"),
    [
        ([CLEAN], "did not show again in 40 runs on either"),
        ([SHOWS, *[CLEAN] * 19], "0/40 against 2/40 may be chance"),
    ],
)
def test_why_it_is_left_open(after: list[Trace], detail: str) -> None:
    assert fight(always(CLEAN), always(*after)).detail == detail


def test_no_time_no_runs() -> None:
    fought = duel(always(CLEAN), always(SHOWS), PROGRAM, FAULT, Patience(1.0, 0.0))
    assert (fought.state, fought.detail, fought.after.runs) == ("uncertain", "no time was left to run it again", 0)


def test_patience_that_ends_in_a_round_ends_it() -> None:
    answers = iter([False, False, True, True])
    fought = duel(always(CLEAN), always(SHOWS), PROGRAM, FAULT, Patience(1.0, float("inf"), lambda: next(answers)))
    assert (fought.state, str(fought.before), str(fought.after)) == ("uncertain", "0/2", "2/2")
    assert fought.detail == "0/2 against 2/2 may be chance"


# 1 of C(10, 5) ways to deal five shows to ten runs; 3 of 10: C(5, 3) of C(10, 3).
@pytest.mark.parametrize(("shown", "runs", "expected"), [(5, 5, 1 / 252), (3, 5, 10 / 120), (0, 5, 1.0)])
def test_chance(shown: int, runs: int, expected: float) -> None:
    assert chance(shown, runs, 5) == pytest.approx(expected)


def test_nothing_is_decided_before_it_shows() -> None:
    assert decide(Side(0, 5), Side(0, 5)) is None


def test_json_of_a_duel() -> None:
    assert Duel("new", Side(0, 5), Side(5, 5), "why").to_json() == {
        "state": "new",
        "baseline": {"shown": 0, "runs": 5, "blocked": 0, "reason": ""},
        "target": {"shown": 5, "runs": 5, "blocked": 0, "reason": ""},
        "detail": "why",
    }
