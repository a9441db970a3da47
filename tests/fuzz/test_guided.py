"""The engine that learns: what it keeps, what it builds on, and that it comes to what lies deep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import run_campaign
from fuzz.corpus import Corpus, Entry
from fuzz.features import CODE, features_of
from fuzz.finding import Finding, Signature, Verdict
from fuzz.generate import Limits, program_for
from fuzz.guided import Guided
from fuzz.ledger import check
from fuzz.order import CampaignError, CampaignOptions
from fuzz.program import Program
from fuzz.trace import Step, Trace
from tests.fuzz.test_campaign import Log, on_decode, options, records  # noqa: F401 - ``options`` is a fixture

LIMITS = Limits(pairs=("triton:fa3",), speculative={"triton:fa3": {}})
PROGRAMS = [program_for(seed, LIMITS) for seed in range(8)]


def trace(program: Program, *features: int, stop: int | None = None, verdict: Verdict = Verdict.OK) -> Trace:
    """Every op a step up to ``stop``, where a finding of ``verdict`` ends it."""
    steps = tuple(Step(index, op.kind, Verdict.OK, 0.0, {}) for index, op in enumerate(program.ops[:stop]))
    finding = Finding(verdict, Signature("contract", "KeyError", "somewhere"), "", "", 0, "")
    return Trace(steps, () if verdict is Verdict.OK else (finding,), 0.0, "9.1", features)


def guided(folder: Path, version: str = "9.1", limits: Limits = LIMITS) -> Guided:
    return Guided(limits, folder, version, pytest.fail)


def kept(folder: Path) -> list[Program]:
    return [entry.program for entry in Corpus(folder, pytest.fail).fresh()]


def test_programs_are_drawn_until_something_is_kept(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    assert [engine.program(seed) for seed in range(8)] == PROGRAMS


def test_what_shows_something_new_is_kept_with_all_that_it_showed(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    engine.learn(PROGRAMS[0], trace(PROGRAMS[0], 1, 2))
    (entry,) = Corpus(tmp_path, pytest.fail).fresh()
    assert (entry.program, entry.version) == (PROGRAMS[0], "9.1")
    assert entry.features == features_of(PROGRAMS[0], trace(PROGRAMS[0], 1, 2)) > {1, 2}


def test_what_shows_nothing_new_is_not_kept(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    again = replace(PROGRAMS[0], seed=1)
    for program in (PROGRAMS[0], again):
        engine.learn(program, trace(program, 1))
    assert kept(tmp_path) == [PROGRAMS[0]]
    engine.learn(again, trace(again, 1, 2))
    assert len(kept(tmp_path)) == 2


@pytest.mark.parametrize("verdict", [Verdict.UNSUPPORTED, Verdict.STUB_GAP, Verdict.INFRA])
def test_what_did_not_test_the_target_is_not_kept(tmp_path: Path, verdict: Verdict) -> None:
    guided(tmp_path).learn(PROGRAMS[0], trace(PROGRAMS[0], 1, verdict=verdict))
    assert kept(tmp_path) == []


def test_program_that_a_fault_ended_is_no_ground_to_build_on(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    engine.learn(PROGRAMS[0], trace(PROGRAMS[0], 1, stop=2, verdict=Verdict.BUG))
    assert kept(tmp_path) == []
    engine.learn(PROGRAMS[1], trace(PROGRAMS[1], 1, verdict=Verdict.BUG))
    assert kept(tmp_path) == [PROGRAMS[1]]


def test_most_programs_then_are_variations_and_valid(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    engine.learn(PROGRAMS[0], trace(PROGRAMS[0], 1))
    programs = [engine.program(seed) for seed in range(100, 160)]
    drawn = [program == program_for(seed, LIMITS) for seed, program in enumerate(programs, 100)]
    assert 10 <= sum(drawn) <= 30
    for program in programs:
        assert program is not None
        check(program)


def test_corpus_is_taken_up_where_it_stands(tmp_path: Path) -> None:
    guided(tmp_path).learn(PROGRAMS[0], trace(PROGRAMS[0], 1))
    engine = guided(tmp_path)
    assert [entry.program for entry in engine.entries] == [PROGRAMS[0]]
    engine.learn(PROGRAMS[0], trace(PROGRAMS[0], 1))
    assert kept(tmp_path) == [PROGRAMS[0]]


def test_corpus_of_another_release_is_run_again_first(tmp_path: Path) -> None:
    guided(tmp_path, "9.0").learn(PROGRAMS[5], trace(PROGRAMS[5], 1))
    engine = guided(tmp_path)
    assert (engine.entries, engine.program(0), engine.program(1)) == ([], PROGRAMS[5], PROGRAMS[1])
    engine.learn(PROGRAMS[5], trace(PROGRAMS[5], 1))
    assert [entry.version for entry in engine.entries] == ["9.1"]


def test_corpus_of_other_pairs_is_passed_over(tmp_path: Path) -> None:
    guided(tmp_path).learn(PROGRAMS[0], trace(PROGRAMS[0], 1))
    engine = guided(tmp_path, limits=replace(LIMITS, pairs=("fa3:triton",)))
    assert engine.entries == []


def test_what_others_add_is_taken_up_meanwhile(tmp_path: Path) -> None:
    engine, other = guided(tmp_path), guided(tmp_path)
    other.learn(PROGRAMS[0], trace(PROGRAMS[0], 1))
    for seed in range(32):
        engine.program(seed)
    assert [entry.program for entry in engine.entries] == [PROGRAMS[0]]


def test_rare_things_are_built_on_more_often(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    common, rare = PROGRAMS[0], replace(PROGRAMS[1], world=replace(PROGRAMS[1].world, context_len=640))
    for _ in range(200):
        engine.learn(common, trace(common, 1))
    engine.learn(rare, trace(rare, 1, 2))
    children = [engine.program(seed) for seed in range(100, 200)]
    assert sum(child is not None and child.world.context_len == 640 for child in children) > 40


WANTED = ("extend", "decode", "retract", "extend", "idle", "decode", "decode", "finish")


def depth(program: Program) -> int:
    """How far the program's ops come in what is wanted, one right after the other."""
    best = reached = 0
    for op in program.ops:
        reached = reached + 1 if op.kind == WANTED[reached] else int(op.kind == WANTED[0])
        best = max(best, reached)
        if best == len(WANTED):
            break
    return best


def test_what_lies_eight_ops_deep_is_come_to_by_what_lies_before_it(tmp_path: Path) -> None:
    """Each step on the way is code of its own, as a state that is built up is; drawn programs never come to the end."""
    engine, reached = guided(tmp_path), 0
    for seed in range(1000):
        program = engine.program(seed)
        assert program is not None
        reached = max(reached, depth(program))
        if reached == 8:
            break
        engine.learn(program, trace(program, *(CODE + step for step in range(depth(program)))))
    assert reached == 8
    assert max(depth(program_for(seed, LIMITS)) for seed in range(1000)) < 7


def test_campaign_says_its_engine_and_leaves_a_corpus(options: Any) -> None:  # noqa: F811
    chosen: CampaignOptions = options(on_decode("raise KeyError('x')"), engine="atheris", programs=30, shrink=False)
    result = run_campaign(chosen, Log())
    assert (result.programs, result.exit_code) == (30, 1)
    assert {record.engine for record in records(chosen.out)} == {"atheris"}
    programs = kept(chosen.out / "corpus")
    assert len(programs) > 5
    assert not any("decode" in {op.kind for op in program.ops[:-1]} for program in programs)


def test_campaign_goes_on_from_its_corpus(options: Any, tmp_path: Path) -> None:  # noqa: F811
    chosen: CampaignOptions = options(engine="atheris", programs=10, corpus=tmp_path / "shared")
    run_campaign(chosen, Log())
    before = set(kept(tmp_path / "shared"))
    log = Log()
    run_campaign(replace(chosen, programs=20), log)
    assert len(log.records) == 10
    assert before < set(kept(tmp_path / "shared"))


def test_corpus_is_for_one_engine(options: Any, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(CampaignError, match="corpus given with engine random; expected engine atheris"):
        run_campaign(options(corpus=tmp_path), Log())


def test_broken_file_of_a_corpus_is_told_and_no_stop(options: Any, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / f"{'0' * 32}.program").write_text("half a pro")
    log = Log()
    result = run_campaign(options(engine="atheris", corpus=tmp_path / "shared"), log)
    assert result.programs == 12
    assert [line for line in log.notes if "does not hold what its name says" in line]


def test_entry_text_is_what_its_name_is_of() -> None:
    assert Entry(PROGRAMS[0], frozenset({1}), "9.1").name != Entry(PROGRAMS[0], frozenset({2}), "9.1").name
