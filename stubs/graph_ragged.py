"""Graph runner of compact verifies: each graph has rows of q for so many tokens, however many requests share them.

As SGLang's own runner does: a graph of ``size`` whole windows has room for as many requests as it has tokens, up to the
most; what requests leave of its tokens goes to rows of padding, or to the last request where there are none.
"""

from __future__ import annotations

from typing import Any

import torch

from stubs import sglang_dspark
from stubs.graph_runner import GraphRunner


class RaggedGraphRunner(GraphRunner):
    """Graphs of the target's verifies. SGLang's planner reads ``ragged_verify_mode``, ``capture_num_tokens``, ``max_bs``."""

    ragged_verify_mode = True

    def __init__(self, runner: Any, backend: Any, mode: str, width: int) -> None:
        super().__init__(runner, backend, mode, width)
        self.rules = sglang_dspark.graph_rules(backend, self.sizes, self.world)
        self.capture_num_tokens: list[int] = self.rules.capture_num_tokens
        self.max_bs = self.requests

    def can_run_graph(self, batch: Any) -> bool:
        """SGLang's own rule, which asks the backend, too, whether it knows such graphs."""
        return bool(self.rules.can_run_graph(batch))

    can_run = can_run_graph

    def load_batch(self, batch: Any) -> None:
        """As of any graph; from 0.5.17 on the layout that was captured is given the batch's lengths first."""
        stage = getattr(self.rules, "_stage_ragged_verify_layout", None)
        if stage is not None:
            stage(batch.spec_info.ragged_verify_layout, self._size_of(batch) * self.width)
        super().load_batch(batch)

    replay_prepare = load_batch

    def padded(self, rows: int) -> int:
        """Of the batch that was loaded: how many rows are padded hangs on its tokens."""
        return self._slots(self.size)

    def _size_of(self, batch: Any) -> int:
        layout = batch.spec_info.ragged_verify_layout
        return int(self.rules._ragged_graph_num_tokens(layout.graph_num_tokens)) // self.width

    def _slots(self, size: int) -> int:
        return int(self.rules._ragged_capture_slots(size * self.width))

    def _spec_info(self, size: int) -> Any:
        layout = self.rules._capture_ragged_verify_layout(size * self.width)
        mask = torch.ones(self._mask_cells(), dtype=torch.bool, device=self.world.device)
        return sglang_dspark.verify_input_to_capture(self.world, mask, self.backend, layout)
