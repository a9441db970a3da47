"""What a run is said to have shown."""

from __future__ import annotations

from fuzz.features import features_of, flags_of, number, shown
from fuzz.finding import Verdict
from fuzz.program import Idle, Program
from fuzz.trace import Step, Trace
from stubs.world import World


def trace(*modes: str, verdict: Verdict = Verdict.OK, features: tuple[int, ...] = ()) -> Trace:
    return Trace(tuple(Step(n, mode, verdict, 0.0, {}) for n, mode in enumerate(modes)), (), 0.0, "9.1", features)


def program(**world: int | str) -> Program:
    return Program(World(prefill="triton", decode="fa3", **world), (Idle(),))  # type: ignore[arg-type]


def test_modes_in_a_row_with_the_pair_and_each_flag() -> None:
    assert list(shown(program(overlap=0), trace("extend", "decode", "idle"))) == [
        "triton:fa3 extend",
        "triton:fa3 overlap extend",
        "triton:fa3 decode",
        "triton:fa3 overlap decode",
        "triton:fa3 idle",
        "triton:fa3 overlap idle",
        "triton:fa3 extend>decode",
        "triton:fa3 overlap extend>decode",
        "triton:fa3 decode>idle",
        "triton:fa3 overlap decode>idle",
        "triton:fa3 extend>decode>idle",
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


def test_code_and_domain_together() -> None:
    assert features_of(program(), trace("idle", features=(7, 9))) == {7, 9, number("triton:fa3 idle")}
