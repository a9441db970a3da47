"""What a run is said to have shown."""

from __future__ import annotations

from fuzz.features import CODE, code_number, features_of, flags_of, number, shown
from fuzz.finding import Verdict
from fuzz.program import Idle, Program
from fuzz.trace import Step, Trace
from stubs.world import World


def trace(*modes: str, verdict: Verdict = Verdict.OK, features: tuple[tuple[int, ...], ...] = ()) -> Trace:
    return Trace(tuple(Step(n, mode, verdict, 0.0, {}) for n, mode in enumerate(modes)), (), 0.0, "9.1", features)


def program(**world: int | str) -> Program:
    return Program(World(prefill="triton", decode="fa3", **world), (Idle(),))  # type: ignore[arg-type]


def test_modes_in_a_row_with_the_pair_and_each_flag() -> None:
    assert list(shown(program(overlap=0), trace("extend", "decode", "idle"))) == [
        (0, "triton:fa3 extend"),
        (0, "triton:fa3 overlap extend"),
        (1, "triton:fa3 decode"),
        (1, "triton:fa3 overlap decode"),
        (2, "triton:fa3 idle"),
        (2, "triton:fa3 overlap idle"),
        (1, "triton:fa3 extend>decode"),
        (1, "triton:fa3 overlap extend>decode"),
        (2, "triton:fa3 decode>idle"),
        (2, "triton:fa3 overlap decode>idle"),
        (2, "triton:fa3 extend>decode>idle"),
    ]


def test_refused_steps_show_nothing() -> None:
    assert list(shown(program(), trace("extend", verdict=Verdict.UNSUPPORTED))) == []


def test_plain_world_has_no_flags() -> None:
    assert list(flags_of(World())) == []


def test_flags_of_an_odd_world() -> None:
    world = World(page_size=4, head_dim=24, num_heads=2, num_kv_heads=2, max_total_tokens=64, sinks=1, graph=2)
    assert list(flags_of(world)) == ["sinks", "graph", "ungrouped", "head_dim_odd", "paged", "pool_tight"]


def test_numbers_are_the_same_everywhere() -> None:
    assert (number("triton:fa3 extend"), number("")) == (1563235208, 0)


def test_pieces_of_code_are_told_from_all_else() -> None:
    assert code_number("triton:fa3 extend") == 1563235208 + CODE


def test_each_op_has_what_it_was_the_first_to_show() -> None:
    code = (CODE + 7, CODE + 9), (CODE + 5,)
    assert features_of(program(), trace("idle", "idle", "idle", features=code)) == [
        {CODE + 7, CODE + 9, number("triton:fa3 idle")},
        {CODE + 5, number("triton:fa3 idle>idle")},
        {number("triton:fa3 idle>idle>idle")},
    ]


def test_op_that_began_and_made_no_step_has_its_code() -> None:
    assert features_of(program(), trace("idle", features=((), (CODE + 7,)))) == [
        {number("triton:fa3 idle")},
        {CODE + 7},
    ]
