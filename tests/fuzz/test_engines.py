"""Where programs come from: the same number is the same program, and a small scope is gone through to its end."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

from fuzz.agenda import SEED_STRIDE
from fuzz.campaign import run_campaign
from fuzz.engines import Exhaustive, Random, small_programs, small_worlds
from fuzz.generate import program_for
from fuzz.ledger import check
from fuzz.limits import Limits
from tests.fuzz.campaign_log import Log, records

LIMITS = Limits(pairs=("triton:fa3",), speculative={"triton:fa3": {"prefill": 4, "decode": 1}})


def ops(program: Any) -> str:
    return "\n".join(program.text.splitlines()[1:])


def test_small_worlds_are_plain_or_verify_in_each_way() -> None:
    worlds = small_worlds(LIMITS)
    for world in worlds:
        world.check()
    shapes = [(w.page_size, w.spec_mode if w.spec_topk else "", w.spec_steps, w.spec_topk) for w in worlds]
    assert shapes == [
        (page, *shape)
        for page in (1, 2)
        for shape in (("", 0, 0), ("prefill", 2, 1), ("prefill", 2, 2), ("decode", 1, 1), ("decode", 1, 2))
    ]


def test_all_programs_of_one_and_two_ops_of_the_plain_world() -> None:
    plain, *_ = small_worlds(LIMITS)
    programs = list(islice(small_programs((plain,)), 115))
    assert [len(program.ops) for program in programs] == [1] * 10 + [2] * 104 + [3]
    assert ops(programs[0]) == '{"op":"extend","rows":[{"request":0,"tokens":1}]}'
    assert ops(programs[9]) == '{"op":"idle"}'
    assert len({program.hash for program in programs}) == 115
    for program in programs:
        check(program)


def test_worlds_take_turns() -> None:
    worlds = small_worlds(LIMITS)
    assert [program.world for program in islice(small_programs(worlds), 20)] == [*worlds, *worlds]


def test_number_is_the_program_whenever_it_is_asked_for() -> None:
    programs = list(islice(small_programs(small_worlds(LIMITS)), 200))
    engine = Exhaustive(LIMITS, data_seed=7)
    for number in (0, 2, 1, 150, 149):  # 149 by another thread, which took it before
        assert engine.program(7 * SEED_STRIDE + number) == replace(programs[number], seed=7)


def test_random_ones_are_those_of_their_seeds() -> None:
    assert Random(LIMITS).program(12) == program_for(12, LIMITS)


def test_exhaustive_campaign_goes_on_where_it_stopped(options: Any) -> None:
    chosen = options(engine="exhaustive", programs=30, seed=2)
    run_campaign(chosen, Log())
    log = Log()
    run_campaign(replace(chosen, programs=50), log)
    assert len(log.records) == 20
    programs = [record.program for record in sorted(records(chosen.out), key=lambda record: record.seed)]
    limits = Limits(pairs=("triton:torch_native",), speculative={"triton:torch_native": {"prefill": 4, "decode": 4}})
    expected = islice(small_programs(small_worlds(limits)), 50)
    assert programs == [replace(program, seed=2).hash for program in expected]
    assert {record.engine for record in records(chosen.out)} == {"exhaustive"}


def test_small_scope_has_an_end(options: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("fuzz.engines.SMALL_OPS_MAX", 1)
    result = run_campaign(options(engine="exhaustive", programs=100_000), Log())
    assert (result.exit_code, result.programs) == (0, 335)
