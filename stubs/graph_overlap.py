"""Graph runner of two-batch overlap: each graph holds a whole step in two halves, each on a backend of its own.

As SGLang's own runner does ("when two_batch_overlap is enabled, we only capture CUDA Graph for tbo=true"): the batch to
capture is split by SGLang's rule before its metadata is planned, and a replay leaves the split to the wrapper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stubs import sglang, sglang_graph, sglang_overlap
from stubs.answer import Answer
from stubs.graph_runner import GraphRunner
from stubs.layer_inputs import LayerInput


class OverlapGraphRunner(GraphRunner):
    """Graphs of the target, whose layers run one half of the batch after the other."""

    def replay(self, inputs: Sequence[LayerInput]) -> list[torch.Tensor]:
        """As of a graph without halves; what a layer gave for each is joined."""
        tokens, outs = len(inputs[0][0]), super().replay(inputs)
        return [torch.cat(pair)[:tokens] for pair in zip(outs[::2], outs[1::2], strict=True)]

    def _plan_capture(self, batch: Any) -> None:
        sglang_overlap.split(batch)
        super()._plan_capture(batch)

    def _run(self, batch: Any) -> list[Answer]:
        """What every layer gives for the first half, and for the second: two tensors a layer."""
        sglang_graph.plan_in_graph(self.backend, batch)
        outs = []
        for layer, given in zip(self.runner.radix_layers, self.inputs, strict=True):
            for half, part, (start, end) in sglang_overlap.halves(self.backend, batch):
                with sglang.forward_context(half, part):
                    q, k, v = (tensor[start:end] for tensor in given)
                    outs.append(Answer.of(layer(q, k, v, part)))
        return outs
