"""How many runs a repro gets, and what chance makes of a verdict and of an interval."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.finding import Finding, Signature, Verdict
from fuzz.interval import interval
from fuzz.program import Extend, Program, Row
from fuzz.repro import Repro
from fuzz.revisions.sample import Run, Sample, clean_runs_for, run_of
from fuzz.trace import Step, Trace
from stubs.world import World

RUNS = {"b": Run("bug", "contract/KeyError/f"), "c": Run("clean"), "o": Run("other", "contract/TypeError/f"),
        "i": Run("infra", "killed"), "u": Run("unsupported"), "g": Run("stub_gap")}  # fmt: skip


def sample(letters: str) -> Sample:
    return Sample(tuple(RUNS[letter] for letter in letters))


@pytest.mark.parametrize(
    ("letters", "state", "k"),
    [
        ("ccc", "clean", 0),
        ("cbc", "bug", 1),
        ("obo", "bug", 1),
        ("coc", "other", 1),
        ("coi", "other", 1),
        ("ciu", "infra", 0),
        ("cug", "stub_gap", 0),
        ("cuc", "unsupported", 0),
        ("", "infra", 0),
    ],
)
def test_state_of_several_runs(letters: str, state: str, k: int) -> None:
    assert (sample(letters).state, sample(letters).k) == (state, k)


@pytest.mark.parametrize(
    ("letters", "clean_runs", "wanted"),
    [
        ("cc", 0, 3),  # never fewer than were asked for
        ("ccc", 0, 3),  # nobody knows how rarely it shows
        ("ccc", 7, 7),
        ("c" * 7, 7, 7),
        ("ccc", 500, 60),
        ("bbb", 7, 3),
        ("bcb", 7, 20),  # sometimes: its rate is wanted
        ("ccccb", 7, 20),
        ("c" * 30 + "b", 60, 60),
        ("bbbb" + "c" * 16, 7, 20),
        ("bbb" + "c" * 17, 7, 60),  # so rare that more than 60 clean runs would be needed
        ("b" * 30 + "c" * 30, 7, 60),
        ("coc", 7, 3),
        ("cic", 7, 3),
    ],
)
def test_runs_wanted(letters: str, clean_runs: int, wanted: int) -> None:
    assert sample(letters).wanted(3, clean_runs) == wanted


@pytest.mark.parametrize(
    ("script", "shown", "needed"),
    [
        ((0, 0), [], 0),
        ((3, 3), [], 7),
        ((3, 3), [(3, 3)], 4),
        ((3, 3), [(3, 3), (6, 20)], 20),  # where it shows most rarely, and that alone
        ((0, 0), [(3, 3)], 7),
        ((0, 3), [], 0),
    ],
)
def test_clean_runs_that_exclude_chance(script: tuple[int, int], shown: list[tuple[int, int]], needed: int) -> None:
    assert clean_runs_for(script, shown) == needed


def outcomes(rate: float, clean_runs: int) -> dict[tuple[int, int], float]:
    """How likely each (k, n) is to be the end of it, of a bug that shows at that rate."""
    going, ended, n = {0: 1.0}, {}, 0
    while going:
        onward: dict[int, float] = {}
        for k, likely in going.items():
            if sample("b" * k + "c" * (n - k)).wanted(3, clean_runs) <= n:
                ended[k, n] = likely
                continue
            onward[k + 1] = onward.get(k + 1, 0.0) + likely * rate
            onward[k] = onward.get(k, 0.0) + likely * (1 - rate)
        going, n = onward, n + 1
    return ended


@pytest.mark.parametrize("rate", [0.05, 0.18, 0.2, 0.28, 0.3, 0.5, 0.95])
@pytest.mark.parametrize("clean_runs", [0, 12, 20, 60])
def test_interval_covers_the_truth_although_what_is_seen_says_when_to_stop(rate: float, clean_runs: int) -> None:
    covered = 0.0
    for (k, n), likely in outcomes(rate, clean_runs).items():
        low, high = interval(k, n)
        covered += likely if low <= rate <= high else 0.0
    assert covered >= 0.95


@pytest.mark.parametrize(
    ("signature", "title", "state"),
    [
        ("bounds/contract_breach/f.page_table:id", "", "bug"),
        # Saved before the rules of an argument were told apart.
        ("bounds/contract_breach/f.page_table", "f: page_table of request 3: page id 512 at column 11", "bug"),
        ("bounds/contract_breach/f.page_table", "f: page_table of request 0: page...", "bug"),
        # The argument's other rule.
        ("bounds/contract_breach/f.page_table", "f: page_table of request 0: has 8 columns", "other"),
        ("bounds/contract_breach/f.page_table", "", "other"),
        ("bounds/contract_breach/f.cache_seqlens", "f: page_table of request 0: page id 9 at column 0", "other"),
    ],
)
def test_a_breach_is_the_repros_by_its_rule_or_by_the_words_of_its_title(
    signature: str, title: str, state: str
) -> None:
    found = Signature("bounds", "contract_breach", "f.page_table:id")
    finding = Finding(Verdict.BUG, found, "f: page_table of request 0: page id 34 at column 0", "", 0, "verify")
    trace = Trace((Step(0, "verify", Verdict.BUG, 0.0, {}),), (finding,), 0.0, "9.1")
    repro = Repro(Program(World(), ()), Signature.parse(signature), title=title)
    assert run_of(trace, repro) == Run(state, "bounds/contract_breach/f.page_table:id")


def test_a_run_without_steps_is_clean_where_the_program_has_none() -> None:
    trace = Trace((), (), 0.0, "9.1")
    start_up = Repro(Program(World(), ()), Signature.parse("contract/ValueError/start"))
    assert run_of(trace, start_up).state == "clean"
    whole = replace(start_up, program=Program(World(), (Extend((Row(0, 2),)),)))
    assert run_of(trace, whole) == Run("infra", "no step was run")
