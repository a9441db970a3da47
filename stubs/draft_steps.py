"""The draft model's decode in several steps: attention layers on drawn inputs, in SGLang's own loop over the steps.

The tokens of all steps together are one step of a program: request by request, branch by branch, step by step, so that a
branch's tokens are a causal run after its request's prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch

from stubs import sglang_draft
from stubs.answer import Answer
from stubs.layer_inputs import LayerInput
from stubs.tap import Tap
from stubs.world import World


@dataclass(frozen=True, slots=True, eq=False)
class DraftRun:
    """A draft to run: ``logits`` float32 [branches, vocabulary] after each step; ``tree`` gets what is drafted."""

    backend: Any
    logits: Sequence[torch.Tensor]
    tree: list[Any] = field(default_factory=list)


class DraftModel:
    """Stands where the worker's loop has its model runner: each call is one step's attention layers, and given logits."""

    def __init__(self, runner: Any, inputs: Sequence[Sequence[LayerInput]], logits: Sequence[torch.Tensor]) -> None:
        self.model_config = runner.model_config
        self.server_args = runner.server_args
        self.canary_manager = None
        self.model = _DraftModule(self)
        self.outs: list[list[Answer]] = []  # by step, by layer
        self._runner, self._inputs, self._logits = runner, inputs, logits
        self._hidden = torch.zeros(
            (len(logits[0]), runner.model_config.hidden_size), dtype=runner.dtype, device=runner.device
        )

    def forward(self, forward_batch: Any, skip_attn_backend_init: bool = True) -> Any:
        """One step over ``forward_batch``, whose metadata is planned."""
        step = len(self.outs)
        pairs = zip(self._runner.radix_layers, self._inputs[step], strict=True)
        self.outs.append([Answer.of(layer(q, k, v, forward_batch)) for layer, (q, k, v) in pairs])
        return sglang_draft.logits_output(self._logits[step], self._hidden)


class _DraftModule:
    """The runner's ``model``: up to 0.5.5 the loop calls the module itself, and has the output without its pair."""

    def __init__(self, runner: DraftModel) -> None:
        self._runner = runner

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, forward_batch: Any) -> Any:
        """As DraftModel.forward: ``input_ids`` and ``positions`` int64 [branches] are the batch's own."""
        return self._runner.forward(forward_batch).logits_output


def run_draft(run: DraftRun, runner: Any, world: World, batch: Any, inputs: Sequence[LayerInput]) -> list[Tap]:
    """All steps without a graph; the batch stays as it is."""
    batch = copy(batch)
    batch.positions, batch.spec_info = batch.positions.clone(), copy(batch.spec_info)
    with torch.no_grad():
        run.backend.init_forward_metadata(batch)
        sglang_draft.mark_planned(batch)
        model = DraftModel(runner, by_step(inputs, world), run.logits)
        run.tree[:] = sglang_draft.draft_forward(model, run.backend, batch, world)
    return joined(inputs, [[out.used for out in step] for step in model.outs])


def by_step(inputs: Sequence[LayerInput], world: World) -> list[list[LayerInput]]:
    """Layer inputs of all steps together [branches * steps, width], as each step has them [branches, width]."""
    steps = world.spec_steps - 1

    def of(tensor: torch.Tensor, step: int) -> torch.Tensor:
        return tensor.view(-1, steps, tensor.shape[-1])[:, step].contiguous()

    return [[(of(q, step), of(k, step), of(v, step)) for q, k, v in inputs] for step in range(steps)]


def joined(inputs: Sequence[LayerInput], outs: Sequence[Sequence[torch.Tensor]]) -> list[Tap]:
    """The taps of all steps together, one a layer; ``outs`` by step, by layer."""
    taps = []
    for index, (q, k, v) in enumerate(inputs):
        out = torch.stack([step[index] for step in outs], dim=1)
        taps.append(Tap(index, q, k, v, out.reshape(len(q), -1)))
    return taps
