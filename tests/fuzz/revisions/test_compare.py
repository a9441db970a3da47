"""Comparisons in which chance has a part: a repro that shows in three of ten runs, on workers that draw lots."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fuzz.comparison import CompareResult
from fuzz.finding import Finding, Signature, Verdict
from fuzz.process import Ready
from fuzz.program import Program
from fuzz.revisions import Rig, column, compare
from fuzz.trace import Step, Trace
from tests.fuzz.revisions.histories import PROGRAM, SIGNATURE, write_script

RATE = 0.3
BUG = Finding(Verdict.BUG, Signature.parse(SIGNATURE), "KeyError", "'x'", 2, "decode")
STEPS = (Step(0, "extend", Verdict.OK, 0.0, {}),)

Plant = Callable[[dict[str, float], int], list[str]]


class Worker:
    """Shows the bug at a rate; every draw is of one generator, in the order of the runs."""

    def __init__(self, rate: float, chance: random.Random, log: list[str], target: str) -> None:
        self.rate, self.chance, self.log, self.target = rate, chance, log, target

    def renew(self) -> None:
        pass

    def run(self, program: Program, timeout_seconds: float) -> Trace:
        assert program == PROGRAM
        self.log.append(self.target)
        return Trace(STEPS, (BUG,) if self.chance.random() < self.rate else (), 0.0, "9.1")


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """``plant(rates, seed)``: the bug shows at these rates on targets of these names. The targets of all runs are logged."""

    def planted(rates: dict[str, float], seed: int) -> list[str]:
        chance, log = random.Random(seed), []

        @contextmanager
        def open_worker(target: str, *rest: object) -> Iterator[tuple[Worker, Ready]]:
            yield Worker(rates[target], chance, log, target), Ready("9.1", {}, 0.0)

        monkeypatch.setattr(column, "open_worker", open_worker)
        return log

    return planted


def states(result: CompareResult) -> list[str]:
    (row,) = result.rows
    return [cell.state for cell in row.cells]


def trials(plant: Plant, script: Path, targets: Sequence[str], number: int) -> list[CompareResult]:
    rates = {target: RATE if "bad" in target else 0.0 for target in targets}
    found = []
    for seed in range(number):
        plant(rates, seed)
        found.append(compare([script], targets, 3, Rig()))
    return found


def test_three_of_ten_is_not_called_fixed_where_it_is_bad(plant: Plant, tmp_path: Path) -> None:
    script = write_script(tmp_path / "a.py", reliability="1 of 3")
    found = trials(plant, script, ["old bad", "still bad"], 200)
    assert [states(result) for result in found] == [["bug", "bug"]] * 200


def test_nor_bad_where_it_is_fixed(plant: Plant, tmp_path: Path) -> None:
    script = write_script(tmp_path / "a.py", reliability="1 of 3")
    found = trials(plant, script, ["before", "bad", "fixed"], 200)
    said = [states(result) for result in found]
    assert {tuple(line[1:]) for line in said} <= {("bug", "fixed"), ("bug", "unsure")}
    assert sum(line == ["clean", "bug", "fixed"] for line in said) >= 190


def test_its_interval_covers_the_truth(plant: Plant, tmp_path: Path) -> None:
    script = write_script(tmp_path / "a.py", reliability="1 of 3")
    found = trials(plant, script, ["bad", "fixed"], 200)
    bounds = [cell.interval for result in found for cell in result.rows[0].cells[:1]]
    assert sum(low <= RATE <= high for low, high in filter(None, bounds)) >= 190


def test_a_script_that_was_lucky_when_it_was_saved_is_found_out(plant: Plant, tmp_path: Path) -> None:
    script = write_script(tmp_path / "a.py", reliability="3 of 3")
    said = [states(result) for result in trials(plant, script, ["bad", "still bad"], 200)]
    # Lucky again on the first (0.3 ** 3), and then without luck in all runs on the second (0.7 ** 7): 1 in 450.
    assert said.count(["bug", "fixed"]) <= 2
    assert said.count(["bug", "bug"]) >= 190


def test_clean_cells_are_topped_up_when_the_bug_turns_out_to_show_rarely(plant: Plant, tmp_path: Path) -> None:
    log = plant({"bad": RATE, "fixed": 0.0}, seed=1)
    result = compare([write_script(tmp_path / "a.py", reliability="20 of 20")], ["fixed", "bad"], 3, Rig())
    clean, bug = result.rows[0].cells
    assert (bug.k, bug.n) == (7, 20)
    assert (clean.state, clean.n) == ("clean", 16)
    assert log == ["fixed"] * 3 + ["bad"] * 20 + ["fixed"] * 13


def test_rarer_than_can_be_excluded_is_unsure(plant: Plant, tmp_path: Path) -> None:
    plant({"bad": 0.05, "fixed": 0.0}, seed=3)
    result = compare([write_script(tmp_path / "a.py", reliability="1 of 3")], ["bad", "fixed"], 3, Rig())
    bug, clean = result.rows[0].cells
    assert (bug.state, clean.state, clean.n) == ("bug", "unsure", 60)
    assert clean.detail.startswith("60 clean runs do not exclude a bug that shows so rarely; ")
    assert (result.rows[0].fixed_in, result.rows[0].is_latent) == (None, True)
