"""Verifies of drafts that no draft model makes, on real releases: the modes they take, right numbers, and known faults."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.program import Extend, Program, Row, Verify
from fuzz.trace import Trace
from stubs.world import World
from tests.conftest import RealWorker

SECONDS = 120
NGRAM = {"spec_algorithm": "NGRAM", "spec_steps": 3, "spec_topk": 2, "spec_draft_tokens": 6}
NARROW = NGRAM | {"spec_steps": 6, "spec_topk": 1}
DFLASH = {"spec_algorithm": "DFLASH", "spec_steps": 1, "spec_topk": 1, "spec_draft_tokens": 4}
OPS = (
    Extend((Row(0, 5), Row(1, 3))),
    Verify((0, 1), (1, 2), draft_extend=0),
    Verify((1,), (1,), draft_extend=0),
    Verify((1, 0), (3, 1), draft_extend=0),
)


def run(worker: Any, prefill: str, decode: str, **fields: Any) -> Trace:
    world = World(prefill=prefill, decode=decode, context_len=48, max_running_requests=2, **fields)
    world.check()
    trace: Trace = worker.run(Program(world, OPS), SECONDS)
    return trace


def seen(trace: Trace) -> tuple[list[str], list[str]]:
    return [step.mode for step in trace.steps], [str(finding.signature) for finding in trace.findings]


@pytest.mark.parametrize(("prefill", "decode"), [("triton", "fa3"), ("fa3", "flashinfer"), ("flashinfer", "triton")])
@pytest.mark.parametrize("draft", [NGRAM, DFLASH], ids=["ngram", "dflash"])
@pytest.mark.parametrize("graph", [0, 1])
@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_each_half_verifies_right(
    real_worker: RealWorker, prefill: str, decode: str, draft: dict[str, Any], graph: int, mode: str
) -> None:
    verify = f"verify_{draft['spec_algorithm'].lower()}_{mode}{'_graph' * graph}"
    trace = run(real_worker("0.5.23"), prefill, decode, spec_mode=mode, graph=graph, **draft)
    assert seen(trace) == (["extend", verify, verify, verify], [])


def test_a_host_that_is_not_told_of_lengths_goes_by_what_is_reserved(real_worker: RealWorker) -> None:
    lengths = {}
    for overlap in (0, 1):
        trace = run(real_worker("0.5.23"), "triton", "fa3", overlap=overlap, **DFLASH)
        lengths[overlap] = [(step.batch["seq_lens"], step.batch["seq_lens_cpu"]) for step in trace.steps[1:3]]
    assert lengths == {0: [([5, 3], [9, 7]), ([5], [9])], 1: [([5, 3], [13, 11]), ([5], [13])]}


def test_a_corpus_of_breadth_one_branches_and_fa3_takes_it_for_a_chain(real_worker: RealWorker) -> None:
    trace = run(real_worker("0.5.23"), "fa3", "triton", **NARROW)
    assert "numeric/tree_mask_ignored/FlashAttentionBackend.forward_extend" in seen(trace)[1]


def test_triton_sees_the_mask_of_a_corpus_of_breadth_one(real_worker: RealWorker) -> None:
    assert seen(run(real_worker("0.5.23"), "triton", "fa3", **NARROW))[1] == []


def test_a_graph_of_dflash_is_captured_with_a_mask_where_the_wrapper_hides_flashinfer(real_worker: RealWorker) -> None:
    trace = run(real_worker("0.5.16"), "flashinfer", "triton", graph=1, **DFLASH)
    place = "FlashInferAttnBackend.verify_graph"
    assert seen(trace)[1] == [f"state/replay_differs/{place}"]


@pytest.mark.parametrize("draft", [NGRAM, NARROW], ids=["broad", "narrow"])
def test_an_older_release_prepares_ngram_in_the_step_that_allocates(
    real_worker: RealWorker, draft: dict[str, Any]
) -> None:
    assert seen(run(real_worker("0.5.12"), "triton", "fa3", **draft))[1] == []


def test_an_older_release_has_no_dflash_worker_to_ask(real_worker: RealWorker) -> None:
    (finding,) = run(real_worker("0.5.12"), "triton", "fa3", **DFLASH).findings
    assert (finding.verdict.value, finding.title[:44]) == (
        "unsupported",
        "this release prepares DFLASH's verify, if it",
    )
