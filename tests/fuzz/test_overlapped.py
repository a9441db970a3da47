"""Two-batch overlap: steps in two halves, each on a backend of its own, on a real release."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.finding import Verdict
from fuzz.generate import program_for
from fuzz.limits import Limits
from fuzz.program import Decode, Extend, Idle, Mixed, Op, Program, Row, Verify
from fuzz.trace import Trace
from fuzz.variation import fitted
from stubs.world import World, WorldError
from tests.conftest import RealWorker
from tests.fuzz.golden import SECONDS, signatures

PAIRS = [("triton", "fa3"), ("fa3", "flashinfer"), ("flashinfer", "triton"), ("torch_native", "triton")]
FIRST = Extend((Row(0, 5), Row(1, 3)))


def run(worker: Any, prefill: str, decode: str, *ops: Op, **fields: Any) -> Trace:
    world = World(prefill=prefill, decode=decode, wrapper="tbo", **fields)
    world.check()
    trace: Trace = worker.run(Program(world, ops), SECONDS)
    return trace


@pytest.mark.parametrize(("prefill", "decode"), PAIRS)
def test_halves_are_served_right(real_worker: RealWorker, prefill: str, decode: str) -> None:
    # One long prompt is cut in two; one request alone leaves the first half empty.
    ops = (FIRST, Decode((0, 1)), Extend((Row(2, 30),)), Decode((0, 1, 2)), Decode((1,)), Idle(), Decode((0,), dead=1))
    trace = run(real_worker("0.5.23"), prefill, decode, *ops, num_layers=2)
    modes = ["extend", "decode", "extend", "decode", "decode", "idle", "decode_padded"]
    assert ([step.mode for step in trace.steps], signatures(trace)) == (modes, [])


@pytest.mark.parametrize(("prefill", "decode"), PAIRS[:3])
@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize(("topk", "width"), [(1, 3), (2, 4)])
def test_halves_of_a_verify_are_served_right(
    real_worker: RealWorker, prefill: str, decode: str, mode: str, topk: int, width: int
) -> None:
    draft = {"spec_algorithm": "EAGLE", "spec_steps": 2, "spec_topk": topk, "spec_draft_tokens": width}
    ops = (FIRST, Verify((0, 1), (1, 2)), Verify((0, 1), (2, 1), 0), Verify((1,), (1,), 0))
    trace = run(real_worker("0.5.23"), prefill, decode, *ops, spec_mode=mode, **draft)
    assert (
        [step.mode for step in trace.steps].count(f"verify_{['chain', 'tree'][topk - 1]}_{mode}"),
        trace.findings,
    ) == (3, ())


@pytest.mark.parametrize("release", ["0.5.12", "0.5.16", "0.5.23"])
@pytest.mark.parametrize(("prefill", "decode"), PAIRS[:3])
def test_halves_in_a_graph_are_served_right(real_worker: RealWorker, release: str, prefill: str, decode: str) -> None:
    # Three requests are padded to four, and one to two.
    ops = (FIRST, Decode((0, 1)), Extend((Row(2, 30),)), Decode((0, 1, 2)), Decode((1,)), Idle())
    trace = run(real_worker(release), prefill, decode, *ops, num_layers=2, graph=1)
    modes = ["extend", "decode_graph", "extend", "decode_graph", "decode_graph", "idle"]
    assert ([step.mode for step in trace.steps], signatures(trace)) == (modes, [])


@pytest.mark.parametrize(("topk", "width"), [(1, 3), (2, 4)])
def test_halves_of_a_verify_in_a_graph_are_served_right(real_worker: RealWorker, topk: int, width: int) -> None:
    draft = {"spec_algorithm": "EAGLE", "spec_steps": 2, "spec_topk": topk, "spec_draft_tokens": width}
    ops = (FIRST, Verify((0, 1), (1, 2)), Verify((0, 1), (2, 1), 0), Verify((1,), (1,), 0))
    trace = run(real_worker("0.5.23"), "triton", "fa3", *ops, graph=1, **draft)
    assert (
        [step.mode for step in trace.steps].count(f"verify_{['chain', 'tree'][topk - 1]}_prefill_graph"),
        trace.findings,
    ) == (3, ())


def test_a_backend_with_less_room_than_the_padded_batch_needs_is_found_out(real_worker: RealWorker) -> None:
    odd = {"graph": 1, "max_running_requests": 3}
    trace = run(real_worker("0.5.12"), "fa3", "flashinfer", FIRST, **odd)
    assert signatures(trace) == ["contract/RuntimeError/FlashInferIndicesUpdaterDecode.call_begin_forward"]
    assert signatures(run(real_worker("0.5.23"), "fa3", "flashinfer", FIRST, **odd)) == []
    trace = run(real_worker("0.5.23"), "fa3", "triton", FIRST, **odd)
    assert signatures(trace) == ["contract/RuntimeError/TritonAttnBackend._fill_kv_indptr_and_indices"]


@pytest.mark.parametrize("release", ["0.5.12", "0.5.16", "0.5.23"])
def test_a_mixed_batch_is_refused_in_the_models_words(real_worker: RealWorker, release: str) -> None:
    """The scheduler splits it before the runner makes it an extend, and no model has an order for its halves."""
    trace = run(real_worker(release), "fa3", "triton", FIRST, Mixed((Row(2, 9),), (0, 1)))
    (finding,) = trace.findings
    assert (finding.verdict, finding.mode) == (Verdict.UNSUPPORTED, "mixed")
    assert finding.title == "OperationsStrategy: Unsupported forward_mode=<ForwardMode.MIXED: 3>"


def test_no_mixed_batch_is_drawn_or_varied_into_being() -> None:
    world = World(prefill="fa3", decode="triton", wrapper="tbo")
    limits = Limits(pairs=("fa3:triton",), worlds=(world,))
    drawn = [program_for(seed, limits) for seed in range(60)]
    varied = [fitted(Program(world, (FIRST, Mixed((Row(2, 9),), (0, 1)))), limits)]
    assert {op.kind for program in drawn for op in program.ops} >= {"extend", "decode", "idle"}
    assert not [op for program in drawn + varied for op in program.ops if isinstance(op, Mixed)]
    assert varied[0].ops == (FIRST, Extend((Row(2, 9),)))


@pytest.mark.parametrize("fields", [{"save_kv_cache": 0}, {"wrapper": "other"}])
def test_what_a_world_cannot_have_with_it(fields: dict[str, Any]) -> None:
    with pytest.raises(WorldError, match="wrapper"):
        World(**{"wrapper": "tbo", **fields}).check()


def test_a_world_without_it_has_the_text_it_had() -> None:
    assert "wrapper" not in World().to_json()
