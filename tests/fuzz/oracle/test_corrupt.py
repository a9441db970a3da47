"""Corrupted steps on a real release: what becomes of each corruption on triton, and what is told of it."""

from __future__ import annotations

import pytest

from fuzz.program import Extend, Mixed, Program, Row, Verify
from fuzz.trace import Trace
from stubs.corrupted_step import APPLY
from stubs.corruption import CORRUPTIONS
from stubs.world import World
from tests.conftest import RealWorker

SECONDS = 120
WORLD = World(prefill="triton", decode="fa3", num_heads=2, num_kv_heads=1)
TREE = World(
    prefill="triton",
    decode="fa3",
    num_heads=2,
    num_kv_heads=1,
    context_len=96,
    overlap=0,
    spec_algorithm="EAGLE",
    spec_mode="prefill",
    spec_steps=3,
    spec_topk=2,
    spec_draft_tokens=6,
)
MIXED = WORLD, (Extend((Row(0, 5),)), Mixed((Row(1, 8, more=1),), (0,)))
DRAFT = TREE, (Extend((Row(0, 5), Row(1, 9), Row(2, 3))), Verify((0, 1, 2), (1, 2, 1)))

OUTCOMES = {
    "mixed": {
        "length_too_long": "correct",  # triton's extend takes lengths from prefixes and counts
        "row_past_table": "caught",
        "row_duplicated": "caught",
        "rows_int32": "correct",
        "rows_strided": "caught",
        "slot_past_pool": "caught",
        "location_past_pool": "refused",
        "locations_short": "refused",
        "locations_duplicated": "silent",
        "locations_int32": "correct",
        "prefix_negative": "refused",
        "prefix_too_long": "silent",
        "extend_row_empty": "silent",
        "batch_size_too_large": "refused",
        "positions_shuffled": "correct",
        "q_strided": "correct",
        "q_wider": "refused",
        "q_lacks_a_head": "refused",
        "q_one_row_short": "caught",
        "kv_one_row_short": "refused",
    },
    "verify": {
        "length_one_short": "silent",
        "length_zero": "silent",
        "lengths_strided": "caught",
        "lengths_missing_one": "refused",
        "sum_too_small": "caught",
        "sum_too_large": "correct",
        "mask_short": "caught",
        "mask_missing": "silent",
        "mask_int32": "correct",
    },
}
TABLE = [(kind, name, outcome) for kind, table in OUTCOMES.items() for name, outcome in table.items()]


def run(worker: RealWorker, kind: str, name: str) -> Trace:
    world, ops = MIXED if kind == "mixed" else DRAFT
    return worker("0.5.23").run(Program(world, ops, corruption=name), SECONDS)


def test_every_corruption_can_be_applied() -> None:
    assert list(APPLY) == list(CORRUPTIONS)
    assert len(CORRUPTIONS) >= 20


@pytest.mark.release
@pytest.mark.parametrize(("kind", "name", "outcome"), TABLE)
def test_what_becomes_of_it(real_worker: RealWorker, kind: str, name: str, outcome: str) -> None:
    trace = run(real_worker, kind, name)
    told = [step.batch["corruption"]["outcome"] for step in trace.steps if "corruption" in step.batch]
    found = [f"corrupt/{name}/TritonAttnBackend.forward_extend"] if outcome in ("silent", "caught") else []
    assert (told, [str(finding.signature) for finding in trace.findings]) == ([outcome], found)


@pytest.mark.release
def test_the_program_goes_on_as_without(real_worker: RealWorker) -> None:
    trace = run(real_worker, "verify", "slot_negative")
    assert [(step.mode, step.verdict.value) for step in trace.steps][-2:] == [
        ("verify_tree_prefill", "ok"),
        ("draft_extend", "ok"),
    ]


@pytest.mark.release
def test_what_cannot_be_done_to_a_step_is_told(real_worker: RealWorker) -> None:
    program = Program(WORLD, (Extend((Row(0, 5),)),), corruption="row_duplicated")
    (step,) = real_worker("0.5.23").run(program, SECONDS).steps
    assert step.batch["corruption"] == {
        "name": "row_duplicated",
        "outcome": "not applicable",
        "detail": "the step has one request",
    }
