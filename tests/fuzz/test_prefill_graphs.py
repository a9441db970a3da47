"""Prefill steps replayed from captured graphs, on real releases: which are, how padded, and what planted faults show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.finding import Verdict
from fuzz.program import Decode, Extend, Finish, Mixed, Op, Program, Retract, Row
from fuzz.trace import Trace
from stubs.world import World
from tests.conftest import RealWorker

pytestmark = pytest.mark.release

SECONDS = 120
EXECUTOR = "tests.fuzz.prefill_graph_executor"
PAIRS = ("fa3:triton", "flashinfer:triton")
# 24 tokens at once, of requests of 16 at most; then 4, a cached prefix, a chunk, and what is left of it beside decodes.
PROMPTS = Extend((Row(0, 8), Row(1, 9), Row(2, 7)))
STEPS: tuple[Op, ...] = (
    PROMPTS,
    Extend((Row(3, 4),)),
    Decode((0, 1, 2, 3)),
    Finish((0,), keep=1),
    Retract((3,)),
    Extend((Row(4, 3, cached_from=0, cached=8),)),
    Finish((4,), keep=0),
    Extend((Row(5, 4, more=1),)),
    Mixed((Row(5, 5),), (1, 2)),
)
REPLAYED = ["extend_graph", "extend_graph", "decode", "finish", "retract", "extend_prefix_graph", "finish"]
REPLAYED += ["extend_chunked_graph", "mixed_graph"]
WINDOWED = {"sliding_window": 5, "alternate_layers": 1, "window_tokens": 256}


def world_of(pair: str, **fields: int) -> World:
    prefill, decode = pair.split(":")
    plain = World(prefill, decode, num_layers=2, context_len=16, max_running_requests=4, prefill_graph=48)
    return replace(plain, **fields)  # type: ignore[arg-type]


def told(trace: Trace) -> list[str]:
    return [str(finding.signature) for finding in trace.findings]


def modes(trace: Trace) -> list[str]:
    return [step.mode for step in trace.steps]


@pytest.mark.parametrize("version", ["0.5.18", "0.5.23"])
@pytest.mark.parametrize("pair", PAIRS)
def test_prefills_of_more_tokens_than_a_context_are_replayed_padded(
    real_worker: RealWorker, pair: str, version: str
) -> None:
    trace = real_worker(version).run(Program(world_of(pair), STEPS), SECONDS)
    assert (modes(trace), told(trace)) == (REPLAYED, [])


@pytest.mark.parametrize("pair", PAIRS)
def test_they_are_replayed_beside_graphs_of_decodes(real_worker: RealWorker, pair: str) -> None:
    world = world_of(pair, graph=2, page_size=4)
    trace = real_worker("0.5.23").run(Program(world, (PROMPTS, Decode((0, 1, 2)), Extend((Row(3, 6),)))), SECONDS)
    assert (modes(trace), told(trace)) == (["extend_graph", "decode_graph", "extend_graph"], [])


def test_layers_with_a_pool_of_their_own_are_replayed(real_worker: RealWorker) -> None:
    program = Program(world_of("fa3:torch_native", **WINDOWED), (PROMPTS, Extend((Row(3, 12),))))
    trace = real_worker("0.5.23").run(program, SECONDS)
    assert (modes(trace), told(trace)) == (["extend_graph", "extend_graph"], [])


def test_sglang_declines_what_would_be_mostly_padding_and_what_is_larger_than_its_graphs(
    real_worker: RealWorker,
) -> None:
    """The smallest graph has four tokens, and no more than half of a graph may be padding."""
    ops = Extend((Row(0, 1),)), Extend((Row(1, 2),)), Extend((Row(2, 9), Row(3, 8)))
    trace = real_worker("0.5.23").run(Program(world_of("fa3:triton", prefill_graph=16), ops), SECONDS)
    assert (modes(trace), told(trace)) == (["extend", "extend_graph", "extend"], [])


@pytest.mark.parametrize(
    ("prefill", "reason"),
    [
        ("triton", "triton: Invalid forward mode: forward_mode=<ForwardMode.EXTEND: 1> for CUDA Graph replay."),
        ("torch_native", "TorchNativeAttnBackend has no init_forward_metadata_out_graph of its own: it plans no graph"),
    ],
)
def test_a_half_that_plans_no_such_graph_is_refused_at_start_up(
    real_worker: RealWorker, prefill: str, reason: str
) -> None:
    trace = real_worker("0.5.23").run(Program(world_of(f"{prefill}:fa3"), (PROMPTS,)), SECONDS)
    assert (trace.verdict, [finding.title for finding in trace.findings]) == (Verdict.UNSUPPORTED, [reason])


def test_a_release_without_such_graphs_runs_without(real_worker: RealWorker) -> None:
    trace = real_worker("0.5.12").run(Program(world_of("fa3:triton"), (PROMPTS,)), SECONDS)
    assert (modes(trace), told(trace)) == (["extend"], [])


PLANTED = {
    "nothing": [],
    "tensor replaced": ["state/replay_differs/FlashAttentionBackend.extend_graph"],
    "preparation skipped": ["state/replay_unwritten/FlashAttentionBackend.extend_graph"],
    "host read": ["state/host_read_in_capture/"],
    "padding in a live slot": ["state/kv_not_written/FlashAttentionBackend.extend_graph"],
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_only_a_graph_punishes_is_found(real_worker: RealWorker, planted: str) -> None:
    ops = PROMPTS, Finish((0,), keep=0), Extend((Row(3, 7),))
    program = Program(world_of("fa3:triton"), ops, seed=list(PLANTED).index(planted))
    trace = real_worker("0.5.23", EXECUTOR).run(program, SECONDS)
    assert PLANTED[planted] == [name for name in PLANTED[planted] if any(name in found for found in told(trace))]
    assert bool(PLANTED[planted]) == bool(told(trace))
