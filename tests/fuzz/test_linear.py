"""The wrapper of models with linear layers beside attention, on real releases that nest it either way."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Op, Program, Retract, Row, Verify
from fuzz.trace import Trace
from stubs.world import World
from tests.conftest import RealWorker

SECONDS = 120
FIRST = Extend((Row(0, 5), Row(1, 3)))
# A request's linear state comes and goes with its row: rows are given back, taken again and left by a prefix that is kept.
PLAIN = (
    FIRST,
    Decode((0, 1)),
    Idle(),
    Mixed((Row(2, 2),), (0, 1)),
    Finish((0,), keep=1),
    Retract((1,)),
    Extend((Row(3, 8, 0, 5),)),
    Extend((Row(1, 6),)),
    Decode((1, 2, 3)),
)
DRAFTS = (FIRST, Verify((0, 1), (1, 2)), Verify((1,), (1,), 0), Verify((0, 1), (2, 1), 0))
EAGLE = {"spec_algorithm": "EAGLE", "spec_steps": 2, "spec_topk": 2, "spec_draft_tokens": 4}
NGRAM = {"spec_algorithm": "NGRAM", "spec_steps": 2, "spec_topk": 2, "spec_draft_tokens": 4}


def run(worker: Any, prefill: str, decode: str, *ops: Op, **fields: Any) -> Trace:
    world = World(prefill=prefill, decode=decode, wrapper="linear", **fields)
    world.check()
    trace: Trace = worker.run(Program(world, ops), SECONDS)
    return trace


def found(trace: Trace) -> tuple[set[str], list[str]]:
    return {step.verdict.value for step in trace.steps}, [str(finding.signature) for finding in trace.findings]


@pytest.mark.parametrize("release", ["0.5.12", "0.5.16", "0.5.23"])
@pytest.mark.parametrize(("prefill", "decode"), [("triton", "fa3"), ("flashinfer", "triton")])
@pytest.mark.parametrize("graph", [0, 1])
def test_requests_are_served_right(
    real_worker: RealWorker, release: str, prefill: str, decode: str, graph: int
) -> None:
    assert found(run(real_worker(release), prefill, decode, *PLAIN, num_layers=2, graph=graph)) == ({"ok"}, [])


@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
@pytest.mark.parametrize("draft", [EAGLE, NGRAM], ids=["eagle", "ngram"])
@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_drafts_are_verified_right(real_worker: RealWorker, release: str, draft: dict[str, Any], mode: str) -> None:
    assert found(run(real_worker(release), "triton", "fa3", *DRAFTS, spec_mode=mode, **draft)) == ({"ok"}, [])


def test_a_wrong_answer_is_put_down_to_the_half_that_gave_it(real_worker: RealWorker) -> None:
    narrow = NGRAM | {"spec_steps": 4, "spec_topk": 1}
    trace = run(real_worker("0.5.23"), "fa3", "triton", *DRAFTS, **narrow)
    assert "numeric/tree_mask_ignored/FlashAttentionBackend.forward_extend" in found(trace)[1]
