"""A speculative round, without SGLang: what is kept of a verified draft, and whether the host knows lengths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stubs.batch import Scheduler
from stubs.plan import RowInput, RowPlan, StepPlan
from tests.stubs.toy_memory import without_sglang
from tests.stubs.toy_scheduler import EAGLE, HEAD_DIM, extend, history, run, scheduler


@pytest.fixture(autouse=True)
def _no_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    without_sglang(monkeypatch)


def verified(target: Scheduler) -> RowPlan:
    """A request of one committed token with a window of four nodes behind it, written and committed."""
    extend(target, RowInput(0, 1), value=100)
    live = target.live[0]
    target.slots.reserve(live, 5, whole_pages=True)
    part = RowPlan(live, 0, 4, 1)
    batch = SimpleNamespace(forward_mode=SimpleNamespace(name="TARGET_VERIFY"))
    for on_draft in (False, True):
        run(target, [StepPlan("verify", on_draft, target.server.target, batch, (part,))])
    pool = target.server.target.token_to_kv_pool
    for buffer in (*pool.k_buffer, *pool.v_buffer):
        buffer[live.slots] = torch.tensor([100.0, 0, 1, 2, 3])[:, None, None].expand(-1, 1, HEAD_DIM)
    return part


def test_accepted_path_moves_to_the_front_of_its_window() -> None:
    target = scheduler(layout="descending", num_layers=2, **EAGLE)
    part = verified(target)
    target.speculative.accept(part, [0, 2, 3])
    live, pool = part.live, target.server.target.token_to_kv_pool
    assert (live.length, live.slots[:5]) == (4, [32, 31, 30, 29, 28])
    for buffer in (*pool.k_buffer, *pool.v_buffer):
        assert buffer[live.slots[:5], 0, 0].tolist() == [100, 0, 2, 3, 3]
    for layer in range(2):
        assert history(target, 0, layer) == [100, 0, 2, 3]
    assert live.draft[0].k[:, 0, 0].tolist() == [100, 0, 1, 2]


def test_rejected_draft_leaves_the_bonus_token_alone() -> None:
    target = scheduler(**EAGLE)
    part = verified(target)
    target.speculative.accept(part, [0])
    assert (part.live.length, history(target, 0)) == (2, [100, 0])


def test_next_step_overwrites_what_was_rejected() -> None:
    target = scheduler(**EAGLE)
    part = verified(target)
    target.speculative.accept(part, [0])
    (plan,) = run(target, target.decode([0]), 7)
    assert plan.batch["out_cache_loc"] == [3]
    assert history(target, 0) == [100, 0, 7]


@pytest.mark.parametrize(
    ("world", "needed", "host"),
    [({}, False, True), ({"overlap": 1}, False, True), (EAGLE, False, True), (EAGLE | {"overlap": 1}, False, False),
     (EAGLE | {"overlap": 1}, True, True)],
)  # fmt: skip
def test_host_lengths_are_left_out_by_sglangs_decision_under_overlap_alone(
    monkeypatch: pytest.MonkeyPatch, world: dict[str, Any], needed: bool, host: bool
) -> None:
    monkeypatch.setattr("stubs.sglang_batch.needs_cpu_seq_lens", lambda args, backends: needed)
    assert scheduler(**world).speculative.host_lengths is host
