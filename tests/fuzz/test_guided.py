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
from fuzz.generate import program_for
from fuzz.guided import Guided
from fuzz.ledger import check
from fuzz.limits import Limits
from fuzz.order import CampaignError, CampaignOptions
from fuzz.program import Decode, Extend, Finish, Idle, Program, Row
from fuzz.trace import Step, Trace
from stubs.world import World
from tests.fuzz.campaign_log import Log, on_decode, records

LIMITS = Limits(pairs=("triton:fa3",), speculative={"triton:fa3": {}})
PLAIN = World(prefill="triton", decode="fa3")
FIRST = Program(PLAIN, (Extend((Row(0, 3),)), Decode((0,)), Idle(), Finish((0,))))  # each op is the first of its kind
OTHER = Program(replace(PLAIN, head_dim=24), (Idle(), *FIRST.ops[:2]))


def trace(program: Program, *code: int, stop: int | None = None, verdict: Verdict = Verdict.OK) -> Trace:
    """Every op a step up to ``stop``, where a finding of ``verdict`` ends it; the n-th runs the n-th piece of ``code``."""
    steps = tuple(Step(index, op.kind, Verdict.OK, 0.0, {}) for index, op in enumerate(program.ops[:stop]))
    finding = Finding(verdict, Signature("contract", "KeyError", "somewhere"), "", "", 0, "")
    return Trace(steps, () if verdict is Verdict.OK else (finding,), 0.0, "9.1", tuple((CODE + one,) for one in code))


def guided(folder: Path, version: str = "9.1", limits: Limits = LIMITS) -> Guided:
    return Guided(limits, folder, version, pytest.fail)


def kept(folder: Path) -> list[Program]:
    return [entry.program for entry in Corpus(folder, pytest.fail).fresh()]


def test_first_programs_are_drawn(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    engine.learn(FIRST, trace(FIRST, 1))
    assert [engine.program(seed) for seed in range(24)] == [program_for(seed, LIMITS) for seed in range(24)]


def test_programs_are_drawn_until_something_is_kept(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    assert [engine.program(seed) for seed in range(40)] == [program_for(seed, LIMITS) for seed in range(40)]


def test_what_shows_something_new_is_kept_with_all_that_it_showed(tmp_path: Path) -> None:
    engine, ran = guided(tmp_path), trace(FIRST)
    engine.learn(FIRST, ran)
    (entry,) = Corpus(tmp_path, pytest.fail).fresh()
    assert (entry.program, entry.version) == (FIRST, "9.1")
    assert entry.features == frozenset().union(*features_of(FIRST, ran))


def test_kept_are_the_ops_up_to_the_last_with_new_code_and_to_the_last_with_anything_new(tmp_path: Path) -> None:
    engine, program = guided(tmp_path), FIRST
    engine.learn(program, trace(program, 1, 2))
    assert {len(one.ops) for one in kept(tmp_path)} == {2, len(program.ops)}
    assert {one.ops for one in kept(tmp_path)} == {program.ops[:2], program.ops}


def test_what_shows_nothing_new_is_not_kept(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    again = replace(FIRST, seed=1)
    engine.learn(FIRST, trace(FIRST))
    engine.learn(again, trace(again))
    assert kept(tmp_path) == [FIRST]
    engine.learn(again, trace(again, 1))
    assert again.with_ops(again.ops[:1]) in kept(tmp_path)


@pytest.mark.parametrize("verdict", [Verdict.UNSUPPORTED, Verdict.STUB_GAP, Verdict.INFRA])
def test_what_did_not_test_the_target_is_not_kept(tmp_path: Path, verdict: Verdict) -> None:
    guided(tmp_path).learn(FIRST, trace(FIRST, 1, verdict=verdict))
    assert kept(tmp_path) == []


def test_op_that_a_fault_ended_is_no_ground_to_build_on(tmp_path: Path) -> None:
    engine, program = guided(tmp_path), FIRST
    engine.learn(program, trace(program, 1, 2, 3, stop=3, verdict=Verdict.BUG))
    assert [one.ops for one in kept(tmp_path)] == [program.ops[:2]]
    (entry,) = engine.entries
    assert {CODE + 1, CODE + 2} < entry.features
    assert CODE + 3 not in entry.features


def test_program_that_goes_on_behind_a_fault_is_kept_whole(tmp_path: Path) -> None:
    guided(tmp_path).learn(OTHER, trace(OTHER, verdict=Verdict.BUG))
    assert kept(tmp_path) == [OTHER]


def test_what_has_new_code_is_lengthened_first_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.guided.DRAWN_FIRST", 0)
    engine, program = guided(tmp_path), FIRST
    engine.learn(program, trace(program, 1))
    children = [engine.program(seed) for seed in range(100, 140)]
    begun = [child for child in children if child is not None and child.ops[:1] == program.ops[:1]]
    assert len(begun) > 12
    assert sum(len(child.ops) in (2, 3) for child in begun) > 10


def test_what_the_first_programs_came_to_by_chance_is_lengthened_then(tmp_path: Path) -> None:
    engine, program = guided(tmp_path), FIRST
    engine.learn(program, trace(program, 1))
    for seed in range(24):
        engine.program(seed)
    children = [engine.program(seed) for seed in range(100, 140)]
    assert sum(child is not None and child.ops[:1] == program.ops[:1] for child in children) > 12


def test_most_programs_then_are_variations_and_valid(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    engine.learn(FIRST, trace(FIRST))
    for seed in range(24):
        engine.program(seed)
    programs = [engine.program(seed) for seed in range(100, 160)]
    drawn = [program == program_for(seed, LIMITS) for seed, program in enumerate(programs, 100)]
    assert 5 <= sum(drawn) <= 30
    for program in programs:
        assert program is not None
        check(program)


def test_corpus_is_taken_up_where_it_stands(tmp_path: Path) -> None:
    guided(tmp_path).learn(FIRST, trace(FIRST))
    engine = guided(tmp_path)
    assert [entry.program for entry in engine.entries] == [FIRST]
    engine.learn(FIRST, trace(FIRST))
    assert kept(tmp_path) == [FIRST]


def test_corpus_of_another_release_is_run_again_first(tmp_path: Path) -> None:
    guided(tmp_path, "9.0").learn(OTHER, trace(OTHER))
    engine = guided(tmp_path)
    assert (engine.entries, engine.program(0), engine.program(1)) == ([], OTHER, program_for(1, LIMITS))
    engine.learn(OTHER, trace(OTHER))
    assert [entry.version for entry in engine.entries] == ["9.1"]


def test_corpus_of_other_pairs_is_passed_over(tmp_path: Path) -> None:
    guided(tmp_path).learn(FIRST, trace(FIRST))
    engine = guided(tmp_path, limits=replace(LIMITS, pairs=("fa3:triton",)))
    assert engine.entries == []


def test_what_others_add_is_taken_up_meanwhile(tmp_path: Path) -> None:
    engine, other = guided(tmp_path), guided(tmp_path)
    other.learn(FIRST, trace(FIRST))
    for seed in range(32):
        engine.program(seed)
    assert [entry.program for entry in engine.entries] == [FIRST]


def test_rare_things_are_built_on_more_often(tmp_path: Path) -> None:
    engine = guided(tmp_path)
    for _ in range(200):
        engine.learn(FIRST, trace(FIRST))
    engine.learn(OTHER, trace(OTHER))
    children = [engine.program(seed) for seed in range(100, 200)]
    assert sum(child is not None and child.world.head_dim == 24 for child in children) > 30


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


def deep_trace(program: Program) -> Trace:
    """Each op that comes further than those before it runs a piece of code of that depth."""
    depths = [depth(program.with_ops(program.ops[: index + 1])) for index in range(len(program.ops))]
    code = tuple((CODE + now,) if now > before else () for before, now in zip([0, *depths], depths, strict=False))
    return replace(trace(program), features=code)


def deepest(folder: Path, seeds: range) -> int:
    """How deep the engine comes with these seeds."""
    engine, reached = guided(folder), 0
    for seed in seeds:
        program = engine.program(seed)
        assert program is not None
        reached = max(reached, depth(program))
        if reached == len(WANTED):
            break
        engine.learn(program, deep_trace(program))
    return reached


def test_what_lies_eight_ops_deep_is_come_to_by_what_lies_before_it(tmp_path: Path) -> None:
    """Each step on the way is code of its own, as a state that is built up is; drawn programs never come to the end."""
    reached = [deepest(tmp_path / str(first), range(first, first + 1000)) for first in range(0, 50_000, 10_000)]
    assert reached.count(8) >= 4
    assert max(depth(program_for(seed, LIMITS)) for seed in range(1000)) < 7


def test_campaign_says_its_engine_and_leaves_a_corpus(options: Any) -> None:
    chosen: CampaignOptions = options(on_decode("raise KeyError('x')"), engine="atheris", programs=30, shrink=False)
    result = run_campaign(chosen, Log())
    assert (result.programs, result.exit_code) == (30, 1)
    assert {record.engine for record in records(chosen.out)} == {"atheris"}
    programs = kept(chosen.out / "corpus")
    assert len(programs) > 5
    assert not any("decode" in {op.kind for op in program.ops[:-1]} for program in programs)


def test_campaign_goes_on_from_its_corpus(options: Any, tmp_path: Path) -> None:
    chosen: CampaignOptions = options(engine="atheris", programs=10, corpus=tmp_path / "shared")
    run_campaign(chosen, Log())
    before = set(kept(tmp_path / "shared"))
    log = Log()
    run_campaign(replace(chosen, programs=20), log)
    assert len(log.records) == 10
    assert before < set(kept(tmp_path / "shared"))


def test_corpus_is_for_one_engine(options: Any, tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="corpus given with engine random; expected engine atheris"):
        run_campaign(options(corpus=tmp_path), Log())


def test_broken_file_of_a_corpus_is_told_and_no_stop(options: Any, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / f"{'0' * 32}.program").write_text("half a pro")
    log = Log()
    result = run_campaign(options(engine="atheris", corpus=tmp_path / "shared"), log)
    assert result.programs == 12
    assert [line for line in log.notes if "does not hold what its name says" in line]


def test_entry_text_is_what_its_name_is_of() -> None:
    assert Entry(FIRST, frozenset({1}), "9.1").name != Entry(FIRST, frozenset({2}), "9.1").name
