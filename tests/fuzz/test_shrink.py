"""Shrinking: planted predicates come down to literal programs, and the search keeps its promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest

from fuzz.generate import program_for
from fuzz.ledger import check
from fuzz.limits import Limits
from fuzz.program import Decode, Extend, Finish, Mixed, Program, ProgramError, Retract, Row, Verify, parse
from fuzz.reduce import PASSES
from fuzz.shrink import Budget, Shrunk, StopShrinking, shrink
from stubs.world import World
from tests.fuzz.golden import DATA

Predicate = Callable[[Program], bool]


def rows_of(program: Program) -> list[Row]:
    return [row for op in program.ops for row in getattr(op, "rows", ())]


def has(kind: type) -> Predicate:
    return lambda program: any(isinstance(op, kind) for op in program.ops)


def comes_back(program: Program) -> bool:
    lost: set[int] = set()
    for op in program.ops:
        if any(row.request in lost for row in getattr(op, "rows", ())):
            return True
        lost |= set(op.requests) if isinstance(op, Retract) else set()
    return False


def two_verified(program: Program) -> bool:
    return any(isinstance(op, Verify) and len(op.requests) == 2 and op.accepts[1] >= 2 for op in program.ops)


def longest(program: Program) -> int:
    """Most KV any request has after any decode or extend of a plain program."""
    lengths: dict[int, int] = {}
    most = 0
    for op in program.ops:
        for row in getattr(op, "rows", ()):
            lengths[row.request] = lengths.get(row.request, 0) + row.cached + row.tokens
        for number in op.requests if isinstance(op, (Decode, Mixed)) else ():
            lengths[number] += 1
        for number in op.requests if isinstance(op, Retract) else ():
            lengths[number] = 0
        most = max([most, *lengths.values()])
    return most


EXTEND_1 = '{"op":"extend","rows":[{"request":0,"tokens":1}]}'
EAGLE = {"spec_algorithm": "EAGLE", "spec_steps": 1, "spec_topk": 1, "spec_draft_tokens": 2}

PLANTED: dict[str, tuple[Predicate, World, list[str]]] = {
    "an extend": (has(Extend), World(), [EXTEND_1]),
    "a decode": (has(Decode), World(), [EXTEND_1, '{"op":"decode","requests":[0]}']),
    "a mixed batch": (
        has(Mixed),
        World(),
        [EXTEND_1, '{"op":"mixed","requests":[0],"rows":[{"request":1,"tokens":1}]}'],
    ),
    "a verify": (
        has(Verify),
        World(**EAGLE),
        [EXTEND_1, '{"accepts":[1],"draft_extend":0,"op":"verify","requests":[0]}'],
    ),
    "a verify of two, the second accepting": (
        two_verified,
        World(**EAGLE),
        [
            '{"op":"extend","rows":[{"request":0,"tokens":1},{"request":1,"tokens":1}]}',
            '{"accepts":[1,2],"draft_extend":0,"op":"verify","requests":[0,1]}',
        ],
    ),
    "a verify that the decode half serves, on pages": (
        lambda p: has(Verify)(p) and p.world.spec_mode == "decode" and p.world.page_size >= 4,
        World(**EAGLE, spec_mode="decode", page_size=4),
        [EXTEND_1, '{"accepts":[1],"draft_extend":0,"op":"verify","requests":[0]}'],
    ),
    "a tree": (
        lambda p: has(Verify)(p) and p.world.spec_topk > 1,
        World(**EAGLE | {"spec_topk": 2}),
        [EXTEND_1, '{"accepts":[1],"draft_extend":0,"op":"verify","requests":[0]}'],
    ),
    "a draft extend": (
        lambda p: any(isinstance(op, Verify) and op.draft_extend for op in p.ops),
        World(**EAGLE),
        [EXTEND_1, '{"accepts":[1],"draft_extend":1,"op":"verify","requests":[0]}'],
    ),
    "a long prefix": (
        lambda p: any(row.cached >= 6 for row in rows_of(p)),
        World(),
        [
            '{"op":"extend","rows":[{"request":0,"tokens":6}]}',
            '{"op":"extend","rows":[{"cached":6,"cached_from":0,"request":1,"tokens":1}]}',
        ],
    ),
    "a prefix in half precision": (
        lambda p: p.world.dtype == "bfloat16" and any(row.cached for row in rows_of(p)),
        World(dtype="bfloat16"),
        [EXTEND_1, '{"op":"extend","rows":[{"cached":1,"cached_from":0,"request":1,"tokens":1}]}'],
    ),
    "a chunk": (
        lambda p: any(row.more for row in rows_of(p)),
        World(),
        ['{"op":"extend","rows":[{"more":1,"request":0,"tokens":1}]}'],
    ),
    "a request that comes back": (
        comes_back,
        World(),
        [EXTEND_1, '{"op":"retract","requests":[0]}', '{"op":"extend","rows":[{"request":0,"tokens":2}]}'],
    ),
    "a kept request": (
        lambda p: any(isinstance(op, Finish) and op.keep for op in p.ops),
        World(),
        [EXTEND_1, '{"keep":1,"op":"finish","requests":[0]}'],
    ),
    "three in a batch": (
        lambda p: any(isinstance(op, Extend) and len(op.rows) == 3 for op in p.ops),
        World(),
        ['{"op":"extend","rows":[{"request":0,"tokens":1},{"request":1,"tokens":1},{"request":2,"tokens":1}]}'],
    ),
    "a length that decodes came to": (
        lambda p: not p.world.is_speculative and longest(p) >= 11,
        World(),
        ['{"op":"extend","rows":[{"request":0,"tokens":11}]}'],
    ),
}


def sample(shows: Predicate, count: int) -> list[Program]:
    """The first generated programs that show it."""
    found = list(islice(filter(shows, (generated(seed) for seed in range(2000))), count))
    assert len(found) == count, "too few generated programs show it"
    return found


@cache
def generated(seed: int) -> Program:
    return program_for(seed, Limits())


@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_comes_down_to_its_text(name: str) -> None:
    shows, world, lines = PLANTED[name]
    for program in sample(shows, 4):
        shrunk = shrink(program, shows).program
        assert (shrunk.text.splitlines()[1:], shrunk.world, shrunk.seed) == (lines, world, 0)


def test_a_fault_at_start_up_needs_no_op() -> None:
    for program in sample(lambda p: p.world.sliding_window > 0, 3):
        shrunk = shrink(program, lambda p: p.world.sliding_window > 0).program
        assert (shrunk.ops, shrunk.world.sliding_window > 0) == ((), True)


def test_the_pair_the_runner_and_the_device_stay() -> None:
    program = program_for(3, Limits(pairs=("fa3:flex",), runner="real", device="cuda"))
    assert shrink(program, lambda p: True).program == Program(
        World(prefill="fa3", decode="flex", runner="real", device="cuda"), ()
    )


@pytest.mark.parametrize("seed", range(8))
def test_what_is_small_already_stays(seed: int) -> None:
    program = generated(seed)
    shows = has(type(program.ops[-1]))
    once = shrink(program, shows).program
    assert shrink(once, shows).program == once


def test_shrinking_repeats_itself() -> None:
    program = sample(comes_back, 1)[0]
    assert shrink(program, comes_back) == shrink(program, comes_back)


def test_every_candidate_is_valid_smaller_than_the_best_and_new() -> None:
    program = max((generated(seed) for seed in range(60)), key=lambda p: len(p.text))
    best, seen = program, {program.hash}

    def shows(candidate: Program) -> bool:
        nonlocal best
        check(candidate)
        assert candidate.cost < best.cost and candidate.hash not in seen
        seen.add(candidate.hash)
        if has(Finish)(candidate):
            best = candidate
            return True
        return False

    assert shrink(program, shows).program == best


def test_nothing_smaller_shows_it() -> None:
    program = parse((DATA / "chunked.jsonl").read_text())
    result = shrink(program, lambda candidate: False)
    assert (result.program, result.kept, result.exhausted) == (program, 0, False)


def test_a_budget_ends_the_search_with_the_best_so_far() -> None:
    program = parse((DATA / "retract.jsonl").read_text())
    result = shrink(program, comes_back, Budget(tries_max=3))
    assert (result.tried, result.exhausted) == (3, True)
    assert comes_back(result.program)


def test_stopping_early_gives_the_best_so_far() -> None:
    program = parse((DATA / "extend_decode.jsonl").read_text())

    def shows(candidate: Program) -> bool:
        if len(candidate.ops) == 1:
            return True
        raise StopShrinking

    without_ops = shrink(program, shows)
    assert without_ops == Shrunk(program, tried=1, kept=0, exhausted=True)


def test_an_invalid_program_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"^op 0 \(decode\): request 0 is unknown; expected a running request$"):
        shrink(Program(World(), (Decode((0,)),)), lambda program: True)


def test_what_the_predicate_raises_comes_through() -> None:
    def broken(program: Program) -> bool:
        raise RuntimeError("the worker is gone")

    with pytest.raises(RuntimeError, match="the worker is gone"):
        shrink(parse((DATA / "mixed.jsonl").read_text()), broken)


@pytest.mark.parametrize("name", ["chunked", "prefix_hit", "verify_tree"])
def test_a_pass_lists_a_bounded_number_of_candidates(name: str) -> None:
    program = replace(parse((DATA / f"{name}.jsonl").read_text()), seed=9)
    assert max(sum(1 for _ in one(program)) for one in PASSES) < 70


@pytest.mark.parametrize("seed", range(5))
def test_a_generated_program_settles_within_the_budget(seed: int) -> None:
    assert not shrink(generated(seed), has(Extend)).exhausted
