"""Negative controls: what rounding makes alone is no finding, and a wrong rule is one, however small its mark."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fuzz.campaign import CampaignOptions, run_campaign
from fuzz.confirm import Patience
from fuzz.contrast import ContrastOptions
from fuzz.control import Control, control, is_borderline, reordered, variants
from fuzz.finding import Finding, Signature, Verdict
from fuzz.lockstep import contrast
from fuzz.program import Decode, Extend, Idle, Program, Row, Verify
from fuzz.tally import Tally
from fuzz.trace import Trace
from stubs.world import World
from tests.fuzz.campaign_log import Log, findings, records
from tests.fuzz.conftest import MakeTarget
from tests.fuzz.test_lockstep import Silent
from tests.fuzz.test_store import RECORD

SIGNATURE = Signature("numeric", "wrong_output", "Leaf.forward_decode")
FOREVER = Patience(program_seconds=1.0, deadline=float("inf"))
PROGRAM = Program(World(), (Extend((Row(0, 3), Row(1, 2))), Decode((0, 1))), seed=5)


def off(times: str, signature: Signature = SIGNATURE) -> Finding:
    return Finding(Verdict.BUG, signature, "title", "message", 1, "decode", {"times_tolerance": times})


@dataclass
class FakeRunner:
    """``off`` says how many tolerances a program is off, "" where it is not."""

    off: Callable[[Program], str]
    signature: Signature = SIGNATURE
    seeds: list[int] = field(default_factory=list)

    def renew(self) -> None:
        pass

    def run(self, program: Program, timeout_seconds: float) -> Trace:
        self.seeds.append(program.seed)
        times = self.off(program)
        return Trace((), (off(times, self.signature),) if times else (), 0.0, "9.1")


def test_what_shows_with_these_data_alone_is_rounding() -> None:
    tried = control(FakeRunner(lambda program: "1.2" if program.seed in (5, 7) else ""), PROGRAM, off("1.2"), FOREVER)
    assert (tried, tried.is_passed) == (Control(1, 16, 1.2), False)
    assert tried.why_dismissed == (
        "rounding: shows in 1 of 16 runs with other data and the batch in another order, at most 1.2 times the tolerance"
    )


def test_what_shows_in_one_order_of_the_batch_alone_and_seldom_is_rounding() -> None:
    def shows(program: Program) -> str:
        return "1.5" if program.ops[1] == Decode((0, 1)) and program.seed % 8 == 1 else ""

    tried = control(FakeRunner(shows), PROGRAM, off("1.5"), FOREVER)
    assert (tried.shown, tried.runs, tried.is_passed) == (2, 16, False)


def test_a_small_mark_that_is_always_there_is_a_fault() -> None:
    tried = control(FakeRunner(lambda program: "1.1"), PROGRAM, off("1.1"), FOREVER)
    assert (tried, tried.is_passed, tried.why_dismissed) == (Control(4, 4, 1.1), True, "")


def test_what_one_order_of_the_batch_always_shows_is_a_fault() -> None:
    shows = FakeRunner(lambda program: "1.5" if program.ops[1] == Decode((0, 1)) else "")
    assert control(shows, PROGRAM, off("1.5"), FOREVER) == Control(4, 8, 1.5)


def test_one_variant_that_is_far_off_is_enough() -> None:
    runner = FakeRunner(lambda program: "90" if program.seed == 7 else "")
    tried = control(runner, PROGRAM, off("1.2"), FOREVER)
    assert (tried, tried.is_passed, runner.seeds) == (Control(1, 2, 90.0), True, [6, 7])


def test_a_wrong_rule_may_have_another_name_with_other_data() -> None:
    named = replace(SIGNATURE, kind="window_short_by_one")
    elsewhere = replace(SIGNATURE, place="Leaf.forward_extend")
    shown = [control(FakeRunner(lambda _: "2", one), PROGRAM, off("2"), FOREVER).shown for one in (named, elsewhere)]
    assert shown == [4, 0]


def test_what_nobody_had_time_to_try_is_a_fault() -> None:
    tried = control(FakeRunner(lambda program: ""), PROGRAM, off("1.2"), Patience(1.0, deadline=0.0))
    assert (tried.runs, tried.is_passed) == (0, True)


def test_what_needs_a_control() -> None:
    crash = replace(off("1"), evidence={})
    assert [is_borderline(one) for one in (off("1.3"), off("4"), off("inf"), crash)] == [True, False, False, False]
    explained = [replace(off("1.3"), evidence={"times_tolerance": "1.3", "times_nearer": near}) for near in ("2", "30")]
    assert [is_borderline(one) for one in explained] == [True, False]


def test_variants_have_other_data_and_turn_each_batch_round_by_turns() -> None:
    made = list(variants(PROGRAM))
    assert [one.seed for one in made] == list(range(6, 22))
    turned = (Extend((Row(1, 2), Row(0, 3))), Decode((1, 0)))
    assert [one.ops for one in made[:3]] == [turned, PROGRAM.ops, turned]


def test_a_verify_keeps_each_requests_tokens() -> None:
    world = World(spec_algorithm="EAGLE", spec_mode="prefill", spec_steps=2, spec_topk=1, spec_draft_tokens=3)
    program = Program(world, (Extend((Row(0, 3), Row(1, 2))), Verify((0, 1), (1, 2))))
    assert reordered(program).ops[1] == Verify((1, 0), (2, 1))


def test_what_is_verified_of_a_request_goes_with_it() -> None:
    world = World(spec_algorithm="DSPARK", spec_steps=1, spec_topk=1, spec_draft_tokens=4)
    program = Program(world, (Extend((Row(0, 3), Row(1, 2))), Verify((0, 1), (1, 2), 0, verify_lens=(3, 2))))
    assert reordered(program).ops[1] == Verify((1, 0), (2, 1), 0, verify_lens=(2, 3))


def test_an_order_that_the_scheduler_cannot_have_is_left() -> None:
    rest_of_a_chunk_comes_first = Extend((Row(1, 4), Row(2, 3)))
    ops = (Extend((Row(0, 4), Row(1, 4, more=1))), rest_of_a_chunk_comes_first, Idle(), Decode((0, 1, 2)))
    assert reordered(Program(World(), ops)).ops == (*ops[:3], Decode((2, 1, 0)))


def test_a_dismissed_difference_is_taken_up_again_where_it_is_more_than_rounding() -> None:
    tally = Tally()
    entry = tally.count_finding(off("1.2"), RECORD, "small")
    assert entry is not None
    entry |= {"examined": True, "dismissed": "rounding: ..."}
    assert (tally.new_bugs, tally.count_finding(off("1.3"), RECORD, "other")) == ([], None)
    again = tally.count_finding(off("80"), RECORD, "far")
    assert (again is entry, entry["program"], entry["dismissed"], entry["examined"]) == (True, "far", "", False)
    assert tally.new_bugs == [entry]


# --- a campaign on sums in half precision, whose batches decide in what order they are added up --------------------------


@pytest.fixture
def rounded(tmp_path: Path, make_target: MakeTarget) -> Callable[[str], CampaignOptions]:
    def make(source: str) -> CampaignOptions:
        return CampaignOptions(
            target=f"path:{make_target(source)}",
            repros=tmp_path / "repros",
            out=tmp_path / "out",
            python=sys.executable,
            programs=100,
            executor="tests.fuzz.rounding_executor",
        )

    return make


def test_differences_of_batch_order_and_tolerance_alone_are_no_findings(
    rounded: Callable[[str], CampaignOptions], tmp_path: Path
) -> None:
    result = run_campaign(rounded("def added(kind): return 0.0\n"), Log())
    assert sum(record.verdict == "bug" for record in records(tmp_path / "out")) > 0  # else nothing was controlled
    assert (result.exit_code, result.scripts) == (0, ())
    (entry,) = findings(tmp_path / "out")
    assert entry["reliability"] == [10, 10]  # the same program shows it every time
    assert entry["dismissed"].startswith("rounding: shows in ")
    assert not list((tmp_path / "repros").glob("*"))


def test_a_wrong_sum_as_small_is_a_finding(rounded: Callable[[str], CampaignOptions], tmp_path: Path) -> None:
    result = run_campaign(rounded("def added(kind): return 0.015 if kind == 'decode' else 0.0\n"), Log())
    (entry,) = findings(tmp_path / "out")
    assert (result.exit_code, len(result.scripts), entry["dismissed"]) == (1, 1, "")
    assert json.loads(entry["program"].splitlines()[-1])["op"] == "decode"


def test_what_rounding_alone_shows_on_one_of_two_targets_is_not_new(
    rounded: Callable[[str], CampaignOptions], make_target: MakeTarget
) -> None:
    baseline = make_target("def added(kind): return 0.0\n", name="baseline")
    otherwise = "def added(kind): return 0.002\n"  # within the tolerance, and so it rounds in other places
    result = contrast(ContrastOptions(f"path:{baseline}", rounded(otherwise)), Silent())
    (one,) = result.differences
    assert (one.state, one.duel.before.shown, one.duel.after.shown, result.exit_code) == ("uncertain", 0, 5, 0)
    assert one.duel.detail.startswith("rounding: shows in ")
