"""The small scheduler over the toy server: made, driven through an op's steps, and asked what it holds."""

from __future__ import annotations

from typing import Any

import torch

from stubs.batch import Scheduler
from stubs.plan import RowInput, StepPlan
from stubs.tap import Tap
from stubs.world import World
from tests.stubs.toy_memory import toy_server

EAGLE = {"spec_algorithm": "EAGLE", "spec_steps": 2, "spec_topk": 2, "spec_draft_tokens": 4}
HEAD_DIM = 8


def scheduler(**world: Any) -> Scheduler:
    fields: dict[str, Any] = {"max_total_tokens": 32, "context_len": 32, "head_dim": HEAD_DIM, "overlap": 0}
    return Scheduler(toy_server(World(**{**fields, **world})), seed=0)


def run(target: Scheduler, steps: Any, value: float = 0.0) -> list[StepPlan]:
    """Run the steps of an op: every layer writes K rows value, value + 1, ... and V rows their negatives."""
    plans = []
    for plan in steps:
        layers = 1 if plan.on_draft else target.world.num_layers
        k = (value + torch.arange(plan.tokens).float())[:, None].repeat(1, HEAD_DIM)
        target.commit(plan, [Tap(layer, k, k, -k, k) for layer in range(layers)])
        plans.append(plan)
    return plans


def extend(target: Scheduler, *rows: RowInput, value: float = 0.0) -> list[StepPlan]:
    return run(target, target.extend(rows), value)


def history(target: Scheduler, request: int, layer: int = 0) -> list[float]:
    held: list[float] = target.live[request].target[layer].k[:, 0, 0].tolist()
    return held


def rows(plan: StepPlan) -> list[tuple[int, int, int, int]]:
    return [(row.live.request_id, row.start, row.count, row.prefix) for row in plan.rows]
