"""The graph runner of the draft's decode: one graph holds SGLang's whole loop over the steps, as its own runner has it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from types import SimpleNamespace
from typing import Any

import torch

from stubs import sglang_draft, sglang_graph
from stubs.answer import Answer
from stubs.draft_steps import DraftModel, DraftRun, by_step, joined
from stubs.graph_buffers import Buffers
from stubs.graph_runner import GraphRunner
from stubs.layer_inputs import LayerInput
from stubs.tap import Tap
from stubs.tiny_model import VOCAB_SIZE


class DraftGraphRunner(GraphRunner):
    """Follows SGLang's EAGLEDraftCudaGraphRunner. ``width`` is the branches of a request."""

    def __init__(self, runner: Any, backend: Any) -> None:
        super().__init__(runner, backend, "DECODE", runner.world.spec_topk)
        world, branches = self.world, self.requests * self.width
        self.steps = world.spec_steps - 1  # of attention: the last step drafts from the one before
        shape = (self.requests, self.width)
        self.topk_p = torch.zeros(shape, dtype=torch.float32, device=world.device)
        self.topk_index = torch.zeros(shape, dtype=torch.int64, device=world.device)
        self.hidden = torch.zeros(
            (self.requests, runner.model_config.hidden_size), dtype=runner.dtype, device=world.device
        )
        self.logits = [torch.zeros((branches, VOCAB_SIZE), device=world.device) for _ in range(self.steps)]
        self.step_inputs = [
            [self._layer_input(layer) for layer in range(len(runner.radix_layers))] for _ in range(self.steps)
        ]
        self.trees: dict[int, Any] = {}

    def padded(self, rows: int) -> int:
        return self.size_for(rows // self.width) * self.width

    def draft(self, run: DraftRun, batch: Any, inputs: Sequence[LayerInput]) -> list[Tap]:
        """Replay the draft of ``batch`` on these layer inputs."""
        self.load_batch(batch)
        branches = len(batch.positions)
        for statics, given in zip(self.step_inputs, by_step(inputs, self.world), strict=True):
            for static, layer in zip(statics, given, strict=True):
                for tensor, value in zip(static, layer, strict=True):
                    tensor[:branches].copy_(value)
        for static, logits in zip(self.logits, run.logits, strict=True):
            static[:branches].copy_(logits)
        outs = self.play(branches)
        layers = len(self.runner.radix_layers)
        run.tree[:] = [tensor[: batch.batch_size].clone() for tensor in self.trees[self.size]]
        return joined(inputs, [outs[start : start + layers] for start in range(0, len(outs), layers)])

    def load_batch(self, batch: Any) -> None:
        super().load_batch(batch)
        size, info = batch.batch_size, batch.spec_info
        if self.size != size:
            for tensor in (self.topk_p, self.topk_index, self.hidden):
                tensor.zero_()
        self.topk_p[:size].copy_(info.topk_p)
        self.topk_index[:size].copy_(info.topk_index)
        self.hidden[:size].copy_(info.hidden_states)

    def _buffers(self) -> Buffers:
        tokens = self.requests * self.width
        locations = tokens * self.world.spec_steps
        return Buffers.make(self.requests, tokens, 1, self.fill, self.world.device, locations)

    def _spec_info(self, size: int) -> Any:
        return sglang_graph.draft_input_to_capture(
            topk_p=self.topk_p[:size], topk_index=self.topk_index[:size], hidden_states=self.hidden[:size]
        )

    def _extra_fields(self, size: int) -> dict[str, Any]:
        return {
            "input_ids": None,
            "out_cache_loc": self.buffers.out_cache_loc[: size * self.width * self.world.spec_steps],
            "extend_seq_lens": self.buffers.extend_seq_lens[:size],
            "extend_seq_lens_cpu": [self.fill] * size,
            "capture_hidden_mode": sglang_graph.hidden_mode("LAST"),
        }

    def _run(self, batch: Any) -> list[Answer]:
        sglang_graph.plan_in_graph(self.backend, batch)
        sglang_draft.mark_planned(batch)
        branches = len(batch.positions)
        inputs = [[(q[:branches], k[:branches], v[:branches]) for q, k, v in step] for step in self.step_inputs]
        model = DraftModel(self.runner, inputs, [logits[:branches] for logits in self.logits])
        locations, hidden = batch.out_cache_loc, batch.spec_info.hidden_states
        self.trees[batch.batch_size] = sglang_draft.draft_forward(model, self.backend, batch, self.world)
        batch.out_cache_loc, batch.spec_info.hidden_states = locations, hidden
        batch.positions.sub_(self.steps)
        return [out for step in model.outs for out in step]

    def _view(self, batch: Any) -> Any:
        """The live batch, its rows padded. Locations are padded from the release on whose backends plan by batch."""
        size, buffers = self.size, self.buffers
        values = {**vars(batch), "num_padding": size - batch.batch_size, "spec_info": copy(batch.spec_info)}
        if size != batch.batch_size:
            values["batch_size"] = size
            values["seq_lens"] = buffers.seq_lens[:size]
            values["req_pool_indices"] = buffers.req_pool_indices[:size]
            values["positions"] = buffers.positions[: size * self.width]
            if hasattr(self.backend, "init_forward_metadata_out_graph"):
                values["out_cache_loc"] = buffers.out_cache_loc[: size * self.width * self.world.spec_steps]
                if batch.seq_lens_sum is not None:
                    values["seq_lens_sum"] = batch.seq_lens_sum + (size - batch.batch_size) * self.fill
        if batch.seq_lens_cpu is not None:
            values["seq_lens_cpu"] = buffers.seq_lens_cpu[:size]
        return SimpleNamespace(**values)
