"""A backend led to slots that are not its request's is caught, whatever the world, and one that is not is left alone.

Every plant is tried on SEEDS worlds and programs; SEAMRIPPER_PLANTED_SEEDS asks for more.
"""

from __future__ import annotations

import os

import pytest

from fuzz.finding import Verdict
from fuzz.generate import program_for
from fuzz.limits import Limits
from fuzz.program import Decode, Extend, Program, Row
from fuzz.trace import Trace
from stubs.world import World
from tests.conftest import RealWorker

pytestmark = pytest.mark.release

SEEDS = int(os.environ.get("SEAMRIPPER_PLANTED_SEEDS", "3"))
SECONDS = 120
# What a plant is tried on is drawn, but for what would hide it: windows, graphs (which repeat no metadata), large pages.
DRAWN = ("prefill", "decode", "dtype", "num_heads", "num_kv_heads", "head_dim", "num_layers", "page_size", "layout")
DRAWN = (*DRAWN, "overlap", "query_scalar", "deterministic", "sinks", "kv_lora_rank")
PAGE_SIZES = {"triton": (1, 2, 4, 8)}
EXECUTOR = "tests.fuzz.planted_executor"
PLANTS = (
    "nothing",
    "misplaced slot",
    "unwritten read",
    "stale prefix",
    "length one long",
    "length one short",
    "write behind the pool",
)


def program(plant: str, seed: int) -> Program:
    """Two requests, a third that begins with the first one's page, decodes in between; triton serves either half."""
    limits = Limits(pairs=("triton:fa3",) if seed % 2 else ("fa3:triton",), speculative={}, page_sizes=PAGE_SIZES)
    drawn = program_for(seed, limits).world
    world = World(context_len=64, max_total_tokens=256, **{name: getattr(drawn, name) for name in DRAWN})
    page = world.page_size
    ops = (
        Extend((Row(0, page + 1 + seed % 3), Row(1, 2 + seed % 5))),
        Decode((0, 1)),
        Extend((Row(2, 1 + seed % 4, 0, page), Row(3, 3))),
        Decode((0, 1, 2, 3) if seed % 3 else (2, 0)),
    )
    return Program(world, ops, seed * len(PLANTS) + PLANTS.index(plant))


def run(real_worker: RealWorker, plant: str, seed: int) -> Trace:
    return real_worker("0.5.23", executor=EXECUTOR).run(program(plant, seed), SECONDS)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("plant", PLANTS[1:-1])
def test_planted_fault_of_ownership_is_caught(real_worker: RealWorker, plant: str, seed: int) -> None:
    trace = run(real_worker, plant, seed)
    assert trace.verdict is Verdict.BUG
    assert {finding.signature.oracle for finding in trace.findings} <= {"bounds", "numeric", "state"}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_without_a_plant_nothing_is_found(real_worker: RealWorker, seed: int) -> None:
    trace = run(real_worker, "nothing", seed)
    assert (trace.verdict, trace.findings, len(trace.steps)) == (Verdict.OK, (), 4)


def test_a_write_behind_the_pool_is_found_by_its_guard_alone(real_worker: RealWorker) -> None:
    trace = run(real_worker, "write behind the pool", 0)
    assert {str(finding.signature) for finding in trace.findings} == {
        "bounds/guard_overwritten/FlashAttentionBackend.k_buffer",
        "bounds/guard_overwritten/TritonAttnBackend.k_buffer",
    }
