"""Steps replayed from captured graphs, on real releases: which are, that nothing is wrong, and what planted faults show."""

from __future__ import annotations

import pytest

from fuzz.finding import Verdict
from fuzz.program import Decode, Extend, Program, Row, Verify
from fuzz.trace import Trace
from stubs.latent_worlds import with_latent
from stubs.world import World
from tests.conftest import RealWorker

pytestmark = pytest.mark.release

SECONDS = 120
EXECUTOR = "tests.fuzz.graph_executor"
PROMPTS = Extend((Row(0, 5), Row(1, 9), Row(2, 3)))
DECODES = PROMPTS, Decode((0, 1, 2)), Decode((1,))
DRAFTS = PROMPTS, Verify((0, 1, 2), (1, 2, 1), draft_decode=1), Verify((1,), (1,), draft_decode=1)


def drafting(pair: tuple[str, str], topk: int, **world: int | str) -> World:
    tree = {"spec_topk": 2, "spec_draft_tokens": 6} if topk > 1 else {"spec_topk": 1, "spec_draft_tokens": 4}
    fields = {"spec_algorithm": "EAGLE", "spec_mode": "decode", "spec_steps": 3, "overlap": 0, "context_len": 96}
    return World(prefill=pair[0], decode=pair[1], **{**fields, **tree, **world})  # type: ignore[arg-type]


def told(trace: Trace) -> list[str]:
    return [str(finding.signature) for finding in trace.findings]


@pytest.mark.parametrize("graph", [1, 4])
@pytest.mark.parametrize("pair", [("fa3", "triton"), ("triton", "fa3")])
def test_decodes_are_replayed_padded(real_worker: RealWorker, pair: tuple[str, str], graph: int) -> None:
    world = World(prefill=pair[0], decode=pair[1], graph=graph, num_layers=2)
    trace = real_worker("0.5.23").run(Program(world, DECODES), SECONDS)
    assert ([step.mode for step in trace.steps], told(trace)) == (["extend", "decode_graph", "decode_graph"], [])


@pytest.mark.parametrize(
    ("pair", "page_size"),
    [
        (("fa3", "triton"), 1),
        (("triton", "fa3"), 4),
        (("triton", "flashinfer"), 1),
        (("fa3", "trtllm_mla"), 32),
        (("triton", "flashmla"), 64),
        (("trtllm_mla", "cutedsl_mla"), 64),
    ],
)
def test_decodes_of_latent_attention_are_replayed_padded(
    real_worker: RealWorker, pair: tuple[str, str], page_size: int
) -> None:
    world = World(prefill=pair[0], decode=pair[1], graph=4, num_layers=2, page_size=page_size, context_len=128)
    trace = real_worker("0.5.23").run(Program(with_latent(world), DECODES), SECONDS)
    assert ([step.mode for step in trace.steps], told(trace)) == (["extend", "decode_graph", "decode_graph"], [])


def test_locations_that_are_read_as_if_they_were_dense_are_found(real_worker: RealWorker) -> None:
    """Of drafts of one branch each step's write locations are a column of a table, which latent KV is stored by."""
    program = Program(with_latent(drafting(("triton", "fa3"), 1)), DRAFTS)
    trace = real_worker("0.5.23").run(program, SECONDS)
    assert told(trace)[:1] == ["bounds/hole/set_mla_kv_buffer_kernel.loc_ptr"]


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("topk", [1, 2])
@pytest.mark.parametrize("pair", [("triton", "fa3"), ("fa3", "triton")])
def test_drafts_and_what_follows_them_are_replayed(
    real_worker: RealWorker, pair: tuple[str, str], topk: int, page_size: int
) -> None:
    program = Program(drafting(pair, topk, graph=2, page_size=page_size), DRAFTS)
    trace = real_worker("0.5.23").run(program, SECONDS)
    shape = "chain" if topk == 1 else "tree"
    drafted = ["draft_decode_graph", f"verify_{shape}_decode_graph", "draft_extend_graph"]
    assert ([step.mode for step in trace.steps], told(trace)) == (["extend", "draft_prefill", *drafted, *drafted], [])


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("topk", [1, 2])
@pytest.mark.parametrize("pair", [("triton", "fa3"), ("fa3", "triton")])
def test_drafts_are_decoded_without_graphs(
    real_worker: RealWorker, pair: tuple[str, str], topk: int, page_size: int
) -> None:
    trace = real_worker("0.5.23").run(Program(drafting(pair, topk, page_size=page_size), DRAFTS), SECONDS)
    shape = "chain" if topk == 1 else "tree"
    drafted = ["draft_decode", f"verify_{shape}_decode", "draft_extend"]
    assert ([step.mode for step in trace.steps], told(trace)) == (["extend", "draft_prefill", *drafted, *drafted], [])


@pytest.mark.parametrize("topk", [1, 2])
def test_drafts_of_a_release_whose_loop_calls_the_model_itself(real_worker: RealWorker, topk: int) -> None:
    shape = "chain" if topk == 1 else "tree"
    modes = ["extend", "draft_prefill", *2 * ["draft_decode", f"verify_{shape}_decode", "draft_extend"]]
    trace = real_worker("0.5.5").run(Program(drafting(("fa3", "triton"), topk), DRAFTS), SECONDS)
    assert ([step.mode for step in trace.steps], told(trace)) == (modes, [])


def test_a_half_that_cannot_be_captured_is_refused_at_start_up(real_worker: RealWorker) -> None:
    trace = real_worker("0.5.23").run(Program(World(graph=1), DECODES), SECONDS)
    assert (trace.verdict, told(trace)) == (
        Verdict.UNSUPPORTED,
        ["contract/refused/AttentionBackend.init_cuda_graph_state"],
    )


PLANTED = {
    "nothing": [],
    "tensor replaced": ["state/replay_differs/TritonAttnBackend.decode_graph"],
    "preparation skipped": ["state/replay_differs/TritonAttnBackend.decode_graph"],
    "host read": ["state/host_read_in_capture/"],
    "padding in a live slot": ["state/kv_not_written/TritonAttnBackend.decode_graph"],
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_only_a_graph_punishes_is_found(real_worker: RealWorker, planted: str) -> None:
    world = World(prefill="fa3", decode="triton", graph=2)
    program = Program(world, (PROMPTS, Decode((1,)), Decode((1,))), seed=list(PLANTED).index(planted))
    trace = real_worker("0.5.23", EXECUTOR).run(program, SECONDS)
    assert PLANTED[planted] == [name for name in PLANTED[planted] if any(name in found for found in told(trace))]
    assert bool(PLANTED[planted]) == bool(told(trace))


def test_a_tree_of_fewer_tokens_than_an_old_graph_has_rows_is_extended_without(real_worker: RealWorker) -> None:
    """Up to 0.5.12 the graph has a row a draft step and one, here 4, and Triton's metadata of it as well."""
    program = Program(
        drafting(("fa3", "triton"), 2, graph=2, spec_draft_tokens=3), (PROMPTS, Verify((0, 1, 2), (1, 1, 1)))
    )
    trace = real_worker("0.5.12").run(program, SECONDS)
    assert [step.mode for step in trace.steps][-1] == "draft_extend"
    assert told(trace) == []


def test_lengths_counted_twice_in_an_old_graph_are_found(real_worker: RealWorker) -> None:
    program = Program(drafting(("fa3", "triton"), 1, graph=2), DRAFTS)
    trace = real_worker("0.5.12").run(program, SECONDS)
    assert told(trace) == ["state/replay_own_kv_counted_twice/TritonAttnBackend.draft_extend_graph"]
