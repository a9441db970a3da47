"""Compact verifies on real releases: of each request as many drafted tokens as SGLang's planner says, packed in a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuzz.finding import Verdict
from fuzz.program import Extend, Op, Program, Row, Verify
from fuzz.trace import Trace
from stubs.latent_worlds import smallest_world
from stubs.world import World
from tests.conftest import RealWorker

pytestmark = pytest.mark.release

SECONDS = 120
EXECUTOR = "tests.fuzz.compact_executor"
BLOCK = {"spec_algorithm": "DSPARK", "spec_steps": 1, "spec_topk": 1, "spec_draft_tokens": 4}
PROMPTS = Extend((Row(0, 5), Row(1, 3)))
STEPS: tuple[Op, ...] = (
    PROMPTS,
    Verify((0, 1), (1, 2), draft_extend=0, verify_lens=(1, 3)),
    Verify((1,), (1,), draft_extend=0, verify_lens=(2,)),
    Verify((1, 0), (3, 1), draft_extend=0, verify_lens=(4, 2)),
    Verify((1, 0), (3, 1), draft_extend=0),
    Verify((0, 1), (1, 1), draft_extend=0, verify_lens=(1, 1)),
)
COUNTS = [[1, 3], [2], [4, 2], [4, 4], [1, 1]]


def world_of(pair: str, **fields: Any) -> World:
    plain = smallest_world(*pair.split(":"), "cpu")
    sizes = {"context_len": max(64, 2 * plain.page_size), "max_running_requests": 3, "max_total_tokens": 512}
    world = replace(plain, **sizes, **BLOCK)
    return replace(world, **fields)


def run(worker: Any, pair: str, ops: tuple[Op, ...] = STEPS, seed: int = 0, **fields: Any) -> Trace:
    world = world_of(pair, **fields)
    world.check()
    trace: Trace = worker.run(Program(world, ops, seed), SECONDS)
    return trace


def modes(trace: Trace) -> list[str]:
    return [step.mode for step in trace.steps]


def told(trace: Trace) -> list[str]:
    return [str(finding.signature) for finding in trace.findings]


@pytest.mark.parametrize("pair", ["fa3:trtllm_mha", "trtllm_mla:cutedsl_mla", "flashinfer:trtllm_mla"])
@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize("graph", [0, 1])
def test_backends_that_know_lengths_give_right_numbers(
    real_worker: RealWorker, pair: str, mode: str, graph: int
) -> None:
    trace = run(real_worker("0.5.23"), pair, spec_mode=mode, graph=graph)
    verify = f"verify_dspark_{mode}{'_graph' * graph}"
    assert (modes(trace), told(trace)) == (["extend"] + [verify] * 5, [])
    assert [step.batch["count"] for step in trace.steps[1:]] == COUNTS


@pytest.mark.parametrize(("graph", "tokens"), [(0, [4, 2, 6, 8, 2]), (1, [4, 4, 8, 8, 4]), (2, [8, 8, 8, 8, 8])])
def test_tokens_are_packed_and_for_graphs_padded_to_whole_windows(
    real_worker: RealWorker, graph: int, tokens: list[int]
) -> None:
    steps = run(real_worker("0.5.23"), "fa3:triton", graph=graph).steps[1:]
    assert [len(step.batch["positions"]) for step in steps] == tokens
    padding = [step.batch["out_cache_loc"][sum(step.batch["count"]) :] for step in steps]
    assert [len(slots) for slots in padding] == [many - sum(count) for many, count in zip(tokens, COUNTS, strict=True)]
    assert not any(slot for slots in padding for slot in slots)


def test_a_host_that_is_told_of_lengths_is_told_of_what_is_verified(real_worker: RealWorker) -> None:
    lengths = {}
    for overlap in (0, 1):
        trace = run(real_worker("0.5.23"), "fa3:triton", overlap=overlap)
        lengths[overlap] = [(step.batch["seq_lens"], step.batch["seq_lens_cpu"]) for step in trace.steps[1:3]]
    assert lengths == {0: [([5, 3], [6, 6]), ([5], [7])], 1: [([5, 3], None), ([5], None)]}


def test_more_requests_than_graphs_have_room_for_are_verified_in_full_and_without(real_worker: RealWorker) -> None:
    trace = run(real_worker("0.5.23"), "fa3:triton", STEPS[:3], graph=1, graph_max=1)
    assert (modes(trace), told(trace)) == (["extend", "verify_dspark_prefill", "verify_dspark_prefill_graph"], [])
    assert [step.batch["count"] for step in trace.steps[1:]] == [[4, 4], [2]]


def test_flashinfer_knows_lengths_and_refuses_graphs(real_worker: RealWorker) -> None:
    assert told(run(real_worker("0.5.23"), "flashinfer:triton")) == []
    trace = run(real_worker("0.5.23"), "flashinfer:triton", graph=1)
    reason = "FlashInfer does not support ragged verify in cuda graph; disable SGLANG_RAGGED_VERIFY_MODE"
    assert (trace.verdict, trace.findings[0].title[: len(reason)]) == (Verdict.UNSUPPORTED, reason)


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
def test_triton_takes_whole_windows_whatever_is_verified(real_worker: RealWorker, version: str) -> None:
    found = told(run(real_worker(version), "triton:fa3", STEPS[:2]))
    assert found == [
        *(f"bounds/storage/_fwd_kernel.{name}_Extend" for name in "QKVO"),
        "numeric/wrong_output/TritonAttnBackend.forward_extend",
    ]
    assert told(run(real_worker(version), "triton:fa3", (PROMPTS, STEPS[4]))) == []


def test_flashmla_takes_windows_of_one_width(real_worker: RealWorker) -> None:
    trace = run(real_worker("0.5.23"), "trtllm_mla:flashmla", STEPS[:2], spec_mode="decode")
    assert told(trace) == ["numeric/wrong_output/FlashMLABackend.forward_extend"]


@pytest.mark.parametrize(("version", "replayed"), [("0.5.16", ""), ("0.5.17", "_graph")])
def test_the_wrapper_hides_until_0_5_17_that_its_half_knows_such_graphs(
    real_worker: RealWorker, version: str, replayed: str
) -> None:
    trace = run(real_worker(version), "fa3:triton", graph=1)
    assert (modes(trace), told(trace)) == (["extend"] + [f"verify_dspark_prefill{replayed}"] * 5, [])


@pytest.mark.parametrize(
    ("pair", "faults"),
    [
        ("flashinfer:trtllm_mla", ["contract/TypeError/DFlashVerifyInput.generate_attn_arg_prefill"]),
        ("fa3:triton", []),
        ("trtllm_mha:triton", []),
    ],
)
def test_a_graph_without_a_row_to_spare_gives_the_tokens_of_padding_to_the_last_request(
    real_worker: RealWorker, pair: str, faults: list[str]
) -> None:
    """It then has more than the longest that the kernel is told of: of no effect, for its own come first."""
    ops = (PROMPTS, Verify((0, 1), (1, 1), draft_extend=0, verify_lens=(2, 3)))
    trace = run(real_worker("0.5.23"), pair, ops, graph=1, max_running_requests=2)
    assert told(trace) == faults


@pytest.mark.parametrize("version", ["0.5.15.post1", "0.5.12"])
def test_an_older_release_does_not_know_the_algorithm(real_worker: RealWorker, version: str) -> None:
    trace = run(real_worker(version), "fa3:triton")
    assert trace.verdict is Verdict.UNSUPPORTED
    assert trace.findings[0].title.startswith("ServerArgs: ")
    assert "DSPARK" in trace.findings[0].title


PLANTED = {
    "nothing": (0, []),
    "lengths of whole windows": (0, ["numeric/wrong_output/FlashAttentionBackend.forward_extend"]),
    "lengths of others": (0, ["numeric/wrong_output/FlashAttentionBackend.forward_extend"]),
    "starts not refreshed": (1, ["state/replay_differs/FlashAttentionBackend.verify_graph"]),
    "metadata replaced": (1, ["bounds/contract_breach/flash_attn_with_kvcache.cache_seqlens"]),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_faults_are_found(real_worker: RealWorker, planted: str) -> None:
    graph, wanted = PLANTED[planted]
    ops = (*STEPS[:3], Verify((0, 1), (1, 1), draft_extend=0, verify_lens=(3, 1)))
    seed = list(PLANTED).index(planted)
    found = told(run(real_worker("0.5.23", executor=EXECUTOR), "fa3:triton", ops, seed, graph=graph))
    assert [name for name in wanted if name not in found] == []
    assert bool(found) == bool(wanted)
