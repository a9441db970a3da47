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
UNCACHED = (*PLAIN[:6], Extend((Row(1, 6),)), Decode((1, 2)))
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


@pytest.mark.parametrize("release", ["0.5.12", "0.5.16", "0.5.23"])
@pytest.mark.parametrize(
    "fields",
    [{"page_size": 4}, {"graph": 1}, {"save_kv_cache": 0}, {"kv_dtype": "fp8_e4m3", "dtype": "bfloat16"}],
    ids=["paged", "graph", "written by the model", "fp8"],
)
def test_layers_behind_linear_ones_are_served_right(
    real_worker: RealWorker, release: str, fields: dict[str, Any]
) -> None:
    settings = {"linear_before": 2, "radix_cache": 0, "num_layers": 2} | fields
    assert found(run(real_worker(release), "fa3", "flashinfer", *UNCACHED, **settings)) == ({"ok"}, [])


@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
def test_drafts_behind_linear_layers_are_verified_right(real_worker: RealWorker, release: str) -> None:
    settings = {"linear_before": 1, "radix_cache": 0, "num_layers": 2} | EAGLE
    assert found(run(real_worker(release), "fa3", "flashinfer", *DRAFTS, **settings)) == ({"ok"}, [])


def test_a_backend_that_takes_the_first_layer_for_one_of_attention_is_found_out(real_worker: RealWorker) -> None:
    settings = {"linear_before": 1, "radix_cache": 0}
    trace = run(real_worker("0.5.16"), "triton", "fa3", *UNCACHED, **settings)
    assert found(trace)[1] == ["contract/ValueError/HybridLinearKVPool._transfer_full_attention_id"]
    assert found(run(real_worker("0.5.23"), "triton", "fa3", *UNCACHED, **settings)) == ({"ok"}, [])


def test_where_no_such_model_is_known_it_is_refused(real_worker: RealWorker) -> None:
    trace = run(real_worker("0.5.6"), "triton", "fa3", *UNCACHED, linear_before=1, radix_cache=0)
    assert found(trace)[1] == ["contract/refused/start-up"]


def test_a_wrong_answer_is_put_down_to_the_half_that_gave_it(real_worker: RealWorker) -> None:
    narrow = NGRAM | {"spec_steps": 4, "spec_topk": 1}
    trace = run(real_worker("0.5.23"), "fa3", "triton", *DRAFTS, **narrow)
    assert "numeric/tree_mask_ignored/FlashAttentionBackend.forward_extend" in found(trace)[1]
