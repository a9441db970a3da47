"""Known bugs of toy releases, looked for where they are and where they are fixed, with the fake executor."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import hunt as hunt_module
from fuzz.hunt import HuntOptions, hunt
from fuzz.hunted import Hunted, Score
from fuzz.known_bugs import KnownBug
from fuzz.program import Decode, Extend, Idle, Program, Row
from stubs.world import World
from tests.fuzz.conftest import CLEAN, FAKE_EXECUTOR, MakeTarget

FAULTY = """
    def step(kind, seed):
        if kind == "decode":
            raise ArithmeticError("the decode sum is off")
"""
STARTLESS = """
    def start():
        raise ArithmeticError("the start-up sum is off")

    def step(kind, seed):
        pass
"""
OTHER = """
    def step(kind, seed):
        if kind == "decode":
            raise KeyError("elsewhere")
"""
ELSEWHERE = """
    def step(kind, seed):
        if kind not in ("extend", "decode"):
            raise KeyError("elsewhere")
"""
GAP = """
    class Gap(Exception):
        pass

    def step(kind, seed):
        if kind == "decode":
            raise Gap("the stub is behind")
"""
BUG = KnownBug("A1", "decode is off", "PR #1", "", "", "ArithmeticError.*sum is off")


def quiet(text: str) -> None:
    """Nobody is told."""


@pytest.fixture
def hunted(make_target: MakeTarget, tmp_path: Path) -> object:
    """``hunted(present, fixed, **fields)``: the one result for BUG on targets with these sources."""

    def run(present: str, fixed: str, **fields: object) -> Hunted:
        here, there = make_target(present, "present"), make_target(fixed, "fixed")
        bug = replace(BUG, present=f"path:{here}", fixed=f"path:{there}")
        options = HuntOptions((bug,), tmp_path / "out", sys.executable, seconds=0.5, executor=FAKE_EXECUTOR)
        (result,) = hunt(replace(options, **fields), quiet)  # type: ignore[arg-type]
        return result

    return run


def test_a_fault_that_the_fixed_release_lacks_is_detected(hunted: object) -> None:
    result = hunted(FAULTY, CLEAN)  # type: ignore[operator]
    assert (result.state, result.oracle, result.signature) == ("detected", "contract", "contract/ArithmeticError/step")
    assert result.detail == ""
    assert result.programs > 0
    assert result.ops == 2  # an extend and the decode


def test_a_fault_at_start_up_needs_no_step_to_be_gone(hunted: object) -> None:
    result = hunted(STARTLESS, CLEAN)  # type: ignore[operator]
    assert (result.state, result.ops, result.detail) == ("detected", 0, "")
    assert result.signature == "contract/ArithmeticError/start"


def test_a_fault_that_both_show_is_not(hunted: object) -> None:
    result = hunted(FAULTY, FAULTY)  # type: ignore[operator]
    assert result.state == "both"
    assert "shows it, too: ArithmeticError at step" in result.detail


def test_no_match_is_missed(hunted: object) -> None:
    result = hunted(OTHER, CLEAN)  # type: ignore[operator]
    assert (result.state, result.signature) == ("missed", "")
    assert result.detail == "none of 1 other faults matches: KeyError at step"
    assert result.seconds >= 0.5


def test_another_fault_on_the_fixed_release_is_told(hunted: object) -> None:
    result = hunted(FAULTY, OTHER)  # type: ignore[operator]
    assert result.state == "detected"
    assert "has another answer to it: KeyError at step" in result.detail


def test_a_simpler_program_is_sought_that_shows_nothing_else_on_the_fixed_release(
    hunted: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(World(), (Extend((Row(0, 3),)), Decode((0,)), Idle()))
    monkeypatch.setattr(
        hunt_module, "smallest", lambda runner, confirmed, patience: replace(confirmed, program=program)
    )
    result = hunted(FAULTY, ELSEWHERE, repros=tmp_path / "repros")  # type: ignore[operator]
    assert (result.state, result.detail, result.ops) == ("detected", "", 2)


def test_a_gap_on_the_fixed_release_leaves_it_unclear(hunted: object) -> None:
    result = hunted(FAULTY, GAP)  # type: ignore[operator]
    assert result.state == "unclear"
    assert "does not come to the end of it: Gap at step" in result.detail


def test_a_target_that_cannot_be_imported_leaves_it_unclear(hunted: object) -> None:
    result = hunted("raise ImportError('broken')", CLEAN)  # type: ignore[operator]
    assert result.state == "unclear"
    assert "cannot run the target: ImportError: broken" in result.detail


def test_a_program_is_saved_for_what_no_script_can_show(hunted: object, tmp_path: Path) -> None:
    result = hunted(FAULTY, CLEAN, repros=tmp_path / "repros")  # type: ignore[operator]
    saved = tmp_path / "repros" / f"A1-{'contract-ArithmeticError-step'}"
    assert result.script.startswith(str(saved))
    assert 'SIGNATURE = "contract/ArithmeticError/step"' in Path(result.script).read_text()


def test_results_are_kept_and_taken_up_again(hunted: object, make_target: MakeTarget, tmp_path: Path) -> None:
    first = hunted(FAULTY, CLEAN)  # type: ignore[operator]
    options = HuntOptions((first.bug,), tmp_path / "out", "/no/such/python", seconds=0.5)
    assert hunt(options, quiet) == [first]


def test_each_seed_has_a_result(make_target: MakeTarget, tmp_path: Path) -> None:
    bug = replace(BUG, present=f"path:{make_target(FAULTY, 'a')}", fixed=f"path:{make_target(CLEAN, 'b')}")
    options = HuntOptions((bug,), tmp_path / "out", sys.executable, 0.5, seeds=2, executor=FAKE_EXECUTOR)
    assert [(result.seed, result.state) for result in hunt(options, quiet)] == [(0, "detected"), (1, "detected")]


def result(state: str, seed: int, programs: int = 0) -> Hunted:
    return Hunted(BUG, seed, 60.0, state, programs=programs, seconds=float(programs))


def test_a_seed_that_missed_counts_as_infinite() -> None:
    found, later, missed = result("detected", 0, 10), result("detected", 1, 30), result("missed", 2, 90)
    score = Score(BUG, (found, later, missed))
    assert (score.best, score.detected, score.programs, score.seconds) == (found, 2, 30, 30.0)
    assert Score(BUG, (found, missed, missed)).programs is None
