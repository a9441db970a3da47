"""A Planner: makes the ScheduleBatch of a step's rows, has SGLang make a ForwardBatch of it, and says what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from stubs import sglang_batch, sglang_padding
from stubs.graph_prefill import PrefillGraphRunner
from stubs.graph_runner import GraphRunner
from stubs.padding import Padding
from stubs.plan import RowPlan, StepPlan, describe
from stubs.tiny_model import VOCAB_SIZE
from stubs.world import World


class Planner:
    """Steps of one server; ``generator`` draws their tokens."""

    def __init__(self, server: Any, generator: torch.Generator) -> None:
        self.server = server
        self.world: World = server.world
        self.generator = generator

    def batch(self, mode: str, parts: Sequence[RowPlan], lengths: list[int], **fields: Any) -> Any:
        """A real ScheduleBatch; seq_lens int64 on device with host mirror and sum, orig_seq_lens int32."""
        tokens, device = sum(part.count for part in parts), self.world.device
        return sglang_batch.schedule_batch(
            self.server.target,
            self.world,
            reqs=[part.live.record for part in parts],
            forward_mode=sglang_batch.forward_mode(mode),
            input_ids=torch.randint(0, VOCAB_SIZE, (tokens,), generator=self.generator).to(device),
            req_pool_indices=self.indices([part.live.row for part in parts]),
            seq_lens=torch.tensor(lengths, dtype=torch.int64, device=device),
            seq_lens_cpu=torch.tensor(lengths, dtype=torch.int64),
            seq_lens_sum=sum(lengths),
            orig_seq_lens=torch.tensor(lengths, dtype=torch.int32, device=device),
            multimodal_inputs=[part.live.record.multimodal_inputs for part in parts],
            **fields,
        )

    def locations(self, parts: Sequence[RowPlan]) -> torch.Tensor:
        """int64 [tokens] on device: the slots that a step's new tokens are written to, its encoders' included."""
        return self.indices([s for part in parts for s in part.live.slots[part.known : part.prefix + part.count]])

    def indices(self, values: Sequence[int]) -> torch.Tensor:
        """int64 on device, as SGLang holds rows and slots."""
        return torch.tensor(values, dtype=torch.int64, device=self.world.device)

    def step(
        self,
        mode: str,
        parts: Sequence[RowPlan],
        batch: Any,
        *,
        on_draft: bool = False,
        graph: GraphRunner | PrefillGraphRunner | None = None,
    ) -> StepPlan:
        """The step over a ScheduleBatch, on the target or ``on_draft``; ``graph`` as in ``planned``."""
        runner = self.server.draft if on_draft else self.server.target
        input_ids = batch.input_ids.clone()
        forward_batch = sglang_batch.forward_batch(batch, runner)
        return replace(self.planned(mode, parts, forward_batch, on_draft=on_draft, graph=graph), input_ids=input_ids)

    def padded(
        self,
        mode: str,
        parts: Sequence[RowPlan],
        batch: Any,
        padding: Padding,
        *,
        graph: GraphRunner | None = None,
    ) -> StepPlan:
        """A step of the target under data-parallel attention: eager, and padded to what the fullest rank has."""
        if not padding.is_needed:
            return self.step(mode, parts, batch, graph=graph)
        rows, beside_extend = len(parts) + padding.dead, padding.beside_extend
        forward_batch = sglang_padding.padded_batch(
            batch, self.server.target, rows, self.world, beside_extend=beside_extend
        )
        plan = self.planned(mode, parts, forward_batch)
        return as_padded(plan, padding, "padded" if forward_batch.forward_mode.name == mode.upper() else "relabelled")

    def planned(
        self,
        mode: str,
        parts: Sequence[RowPlan],
        forward_batch: Any,
        *,
        on_draft: bool = False,
        graph: GraphRunner | PrefillGraphRunner | None = None,
    ) -> StepPlan:
        """``graph`` is what replays steps of this kind; SGLang's rule says whether it replays this one."""
        runner = self.server.draft if on_draft else self.server.target
        described = describe(parts, forward_batch)
        if graph is None or not graph.can_run_graph(forward_batch):
            return StepPlan(mode, on_draft, runner, forward_batch, tuple(parts), described)
        return StepPlan(f"{mode}_graph", on_draft, runner, forward_batch, tuple(parts), described, graph)


def as_padded(plan: StepPlan, padding: Padding, how: str = "padded") -> StepPlan:
    """``plan``, whose batch may be ``padding``'s: then with its requests of nobody, and in a mode that says so."""
    if not padding.is_needed:
        return plan
    dead = plan.forward_batch.batch_size - len(plan.rows)
    is_planned = not sglang_batch.needs_forward_metadata(plan.forward_batch)
    return replace(plan, mode=f"{plan.mode}_{how}", padding=dead, is_padded=True, is_planned=is_planned)
