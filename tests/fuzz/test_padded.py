"""Steps of a rank among several: in a program's text, in a ledger, shrunk, and on a real release."""

from __future__ import annotations

import pytest

from fuzz import reduce
from fuzz.ledger import check
from fuzz.mend import mend
from fuzz.program import Decode, Extend, Idle, Program, ProgramError, Row, Verify, parse
from fuzz.trace import Trace
from stubs.world import World
from tests.conftest import RealWorker

SECONDS = 120
FIRST = Extend((Row(0, 5), Row(1, 3)))
DRAFTS = {"spec_algorithm": "EAGLE", "spec_steps": 2, "spec_topk": 1, "spec_draft_tokens": 3, "context_len": 256}
TREES = {**DRAFTS, "spec_topk": 2, "spec_draft_tokens": 4}
NGRAM = {**DRAFTS, "spec_algorithm": "NGRAM", "spec_steps": 3}
BOTH = Verify((0, 1), (1, 2), draft_decode=1, dead=2)


def program(*ops: Decode | Idle | Verify, **world: object) -> Program:
    return Program(World(**world), (FIRST, *ops))  # type: ignore[arg-type]


def test_padding_stands_in_the_text_where_there_is_some() -> None:
    padded = program(Decode((0, 1), dead=2), Decode((0,), beside_extend=1), Idle(dead=1), Idle())
    assert padded.text.splitlines()[2:] == [
        '{"dead":2,"op":"decode","requests":[0,1]}',
        '{"beside_extend":1,"op":"decode","requests":[0]}',
        '{"dead":1,"op":"idle"}',
        '{"op":"idle"}',
    ]
    assert parse(padded.text) == padded
    verify = program(BOTH, **DRAFTS)
    assert '"dead":2,"draft_decode":1,"draft_extend":1' in verify.text
    assert parse(verify.text) == verify
    assert "dead" not in program(Verify((0,), (1,)), **DRAFTS).text


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (Decode((0,), dead=65), "op 1 (decode): 65 dead rows; expected at most 64"),
        (Decode((0,), beside_extend=2), "op 1 (decode): beside_extend is 2; expected 0 or 1"),
        (
            Decode((0,), dead=1, beside_extend=1),
            "op 1 (decode): 1 dead rows of a step that is run as an extend; expected none",
        ),
        (Idle(beside_extend=1), "op 1 (idle): an idle step beside an extend without dead rows; expected at least one"),
        (Idle(dead=5), "op 1 (idle): a step of 5 rows, dead ones included; expected at most 4"),
        (Decode((0, 1), dead=3), "op 1 (decode): a step of 5 rows, dead ones included; expected at most 4"),
    ],
)
def test_what_a_ledger_refuses(op: Decode | Idle, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        check(program(op))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("world", "op", "message"),
    [
        (
            DRAFTS,
            Verify((0, 1), (1, 1), dead=3),
            "op 1 (verify): a step of 5 rows, dead ones included; expected at most 4",
        ),
        (DRAFTS, Verify((0,), (1,), dead=65), "op 1 (verify): 65 dead rows; expected at most 64"),
        (
            NGRAM,
            Verify((0,), (1,), draft_extend=0, dead=1),
            "op 1 (verify): padding of a verify of NGRAM; expected none: EAGLE's alone is padded",
        ),
    ],
)
def test_what_a_ledger_refuses_of_verifies(world: dict[str, object], op: Verify, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        check(program(op, **world))
    assert str(caught.value) == message


def test_a_rank_that_extends_may_have_more_tokens_than_another_requests() -> None:
    check(program(Idle(dead=5, beside_extend=1)))


def test_a_request_that_leaves_a_padded_step_leaves_its_padding() -> None:
    ops = (Extend((Row(0, 5),)), Decode((0, 1), dead=2), Decode((0, 1), beside_extend=1))
    assert mend(World(), ops)[1:] == (Decode((0,), dead=2), Decode((0,), beside_extend=1))


def test_padding_is_shrunk_away() -> None:
    found = [one.ops[1] for one in reduce.plain_steps(program(Idle(dead=2, beside_extend=1)))]
    assert found == [Idle(), Idle(dead=2), Idle(beside_extend=1), Idle(dead=1, beside_extend=1)]
    fewer = {one.ops[1] for one in reduce.plain_steps(program(BOTH, **DRAFTS))}
    assert {Verify((0, 1), (1, 2), draft_decode=1, dead=dead) for dead in (0, 1)} <= fewer


def test_a_verify_of_drafts_without_a_model_loses_its_padding() -> None:
    world = program(BOTH, **NGRAM).world
    assert mend(world, (FIRST, BOTH))[1:] == (Verify((0, 1), (1, 2), draft_decode=1),)


def steps(trace: Trace) -> list[tuple[str, object, object]]:
    return [(step.mode, step.batch["forward_mode"], step.batch["seq_lens"]) for step in trace.steps[1:]]


@pytest.mark.parametrize("pair", [("triton", "fa3"), ("fa3", "flashinfer"), ("flashinfer", "triton")])
def test_a_rank_is_padded_to_what_the_fullest_has(real_worker: RealWorker, pair: tuple[str, str]) -> None:
    padded = program(Decode((0, 1), dead=1), Idle(dead=2), Decode((0, 1)), prefill=pair[0], decode=pair[1])
    trace = real_worker("0.5.23").run(padded, SECONDS)
    assert trace.findings == ()
    assert steps(trace) == [
        ("decode_padded", "DECODE", [6, 4, 1]),
        ("idle_padded", "IDLE", [1, 1]),
        ("decode", "DECODE", [7, 5]),
    ]


@pytest.mark.parametrize("pair", [("triton", "fa3"), ("fa3", "flashinfer"), ("flashinfer", "triton")])
def test_a_rank_beside_one_that_extends_runs_as_an_extend(real_worker: RealWorker, pair: tuple[str, str]) -> None:
    ops = Decode((0, 1), beside_extend=1), Idle(dead=2, beside_extend=1), Decode((0,), beside_extend=1)
    trace = real_worker("0.5.23").run(program(*ops, prefill=pair[0], decode=pair[1]), SECONDS)
    assert trace.findings == ()
    # An idle rank's dead rows are one request's tokens.
    assert steps(trace) == [
        ("decode_relabelled", "EXTEND", [6, 4]),
        ("idle_relabelled", "EXTEND", [2]),
        ("decode_relabelled", "EXTEND", [7]),
    ]


def test_a_rank_whose_decode_half_knows_no_padding_is_refused(real_worker: RealWorker) -> None:
    trace = real_worker("0.5.23").run(program(Decode((0,), dead=1), decode="torch_native"), SECONDS)
    (finding,) = trace.findings
    assert (finding.verdict.value, finding.mode) == ("unsupported", "decode")


def test_an_older_release_runs_no_rank_as_an_extend(real_worker: RealWorker) -> None:
    worker = real_worker("0.5.12")
    padded = worker.run(program(Decode((0, 1), dead=1), Idle(dead=2), prefill="triton", decode="fa3"), SECONDS)
    assert ([step.mode for step in padded.steps], padded.findings) == (["extend", "decode_padded", "idle_padded"], ())
    (finding,) = worker.run(program(Decode((0,), beside_extend=1), prefill="triton", decode="fa3"), SECONDS).findings
    assert (finding.verdict.value, finding.mode) == ("unsupported", "decode")


@pytest.mark.parametrize("pair", [("triton", "fa3"), ("fa3", "triton")])
@pytest.mark.parametrize(("drafts", "shape"), [(DRAFTS, "chain"), (TREES, "tree")])
def test_a_verify_and_its_draft_extend_are_padded(
    real_worker: RealWorker, pair: tuple[str, str], drafts: dict[str, object], shape: str
) -> None:
    padded = program(BOTH, Verify((0, 1), (2, 1)), prefill=pair[0], decode=pair[1], **drafts)
    trace = real_worker("0.5.23").run(padded, SECONDS)
    assert trace.findings == ()
    width = int(str(drafts["spec_draft_tokens"]))
    assert steps(trace)[2:] == [
        (f"verify_{shape}_prefill_padded", "TARGET_VERIFY", [5, 3, 1, 1]),
        ("draft_extend_padded", "DRAFT_EXTEND_V2", [5 + width, 3 + width, 1, 1]),
        (f"verify_{shape}_prefill", "TARGET_VERIFY", [6, 5]),
        ("draft_extend", "DRAFT_EXTEND_V2", [6 + width, 5 + width]),
    ]


def test_a_tree_of_an_odd_number_of_rows_is_padded(real_worker: RealWorker) -> None:
    padded = program(
        Verify((0, 1), (1, 1), dead=1), prefill="triton", decode="fa3", **{**TREES, "spec_draft_tokens": 3}
    )
    trace = real_worker("0.5.23").run(padded, SECONDS)
    assert [step.mode for step in trace.steps[2:]] == ["verify_tree_prefill_padded", "draft_extend_padded"]
    assert [finding for finding in trace.findings if finding.verdict.value == "infra"] == []


def test_a_padded_verify_is_run_without_its_graph(real_worker: RealWorker) -> None:
    trace = real_worker("0.5.23").run(
        program(BOTH, Verify((0, 1), (2, 1)), prefill="fa3", decode="fa3", graph=1, **DRAFTS), SECONDS
    )
    assert trace.findings == ()
    assert [step.mode for step in trace.steps[3:]] == [
        "verify_chain_prefill_padded",
        "draft_extend_padded",
        "verify_chain_prefill_graph",
        "draft_extend_graph",
    ]


def test_a_draft_extend_planned_before_it_was_padded(real_worker: RealWorker) -> None:
    """Fewer rows are planned than the kernel is given."""
    trace = real_worker("0.5.23").run(
        program(BOTH, prefill="triton", decode="flashinfer", spec_mode="decode", **DRAFTS), SECONDS
    )
    (finding,) = trace.findings
    assert finding.mode == "draft_extend_padded"
    assert finding.title == "BatchPrefillWithRaggedKVCacheWrapper: q: has 12 rows, qo_indptr ends at 6"


def test_a_padded_tree_counts_more_requests_than_there_are(real_worker: RealWorker) -> None:
    """Workers of 0.5.7 to 0.5.15 tell padding of steps + 1 tokens a request, of which a tree has more."""
    trace = real_worker("0.5.14").run(
        program(BOTH, prefill="fa3", decode="triton", spec_mode="decode", **TREES), SECONDS
    )
    (padded,) = (step for step in trace.steps if step.mode == "verify_tree_decode_padded")
    assert padded.batch["seq_lens"] == [5, 3, 1, 1, 1]


def test_an_older_release_plans_a_verify_before_it_pads(real_worker: RealWorker) -> None:
    trace = real_worker("0.5.12").run(program(BOTH, prefill="triton", decode="fa3", **DRAFTS), SECONDS)
    assert trace.findings == ()
    assert [step.mode for step in trace.steps[3:]] == ["verify_chain_prefill_padded", "draft_extend_padded"]
