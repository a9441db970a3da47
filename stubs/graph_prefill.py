"""Graphs of whole prefill steps, one for each count of tokens, of up to as many requests as the server runs.

SGLang's own runner captures and replays them (``stubs.sglang_prefill``); here is what it leaves to a GPU: the graphs
themselves, and the model's body, which is its layers of attention on static inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from stubs import sglang_prefill
from stubs.answer import Answer
from stubs.graph import Graph, HostRead
from stubs.graph_runner import Captured
from stubs.layer_inputs import LayerInput
from stubs.tap import Tap
from stubs.world import World

_WARM_UPS = 2  # as SGLang's own backend of full graphs


class PrefillGraphRunner:
    """Graphs of the extends, and of extends mixed with decodes, of a fake runner's backend."""

    def __init__(self, runner: Any, backend: Any, counts: list[int]) -> None:
        """``counts`` of tokens to capture at, rising."""
        self.runner, self.backend, self.counts = runner, backend, counts
        self.world: World = runner.world
        self.inputs = [self._layer_input() for _ in runner.radix_layers]
        self.captured: dict[int, Captured] = {}
        self.count = 0  # of tokens of the graph replayed last, padding included
        self._own = sglang_prefill.start(runner, self, counts, self._layers)
        # A request each, as the state of the whole runner: what kernels are told of the requests they work for.
        self.buffers = SimpleNamespace(**self._own._prefill_static_buffers)

    def capture(self) -> None:
        """Capture every count, the largest first as SGLang does."""
        with torch.no_grad(), sglang_prefill.operators_in_python():
            for count in reversed(self.counts):
                self._own.capture_one_shape(count)

    @property
    def host_reads(self) -> list[HostRead]:
        return [read for captured in self.captured.values() for read in captured.graph.host_reads]

    @property
    def metadata(self) -> Any:
        """What the graph replayed last reads."""
        return self.captured[self.count].metadata

    def can_run_graph(self, batch: Any) -> bool:
        """SGLang's rule: requests and tokens for which there is a graph that is not mostly padding."""
        return bool(self._own.can_run_graph(batch))

    def padded(self, rows: int) -> int:
        """Rows of a step's plan, padding included: each graph has as many requests as the server runs."""
        return self.world.max_running_requests

    def step(self, batch: Any, inputs: Sequence[LayerInput]) -> list[Tap]:
        """Replay the step of ``batch`` on these layer inputs; NaN where a layer gave nothing."""
        loaded = self._own.load_batch(batch)
        static = loaded[0] if isinstance(loaded, tuple) else loaded
        self.count, tokens = len(static.input_ids), len(inputs[0][0])
        for layer, given in zip(self.inputs, inputs, strict=True):
            for tensor, value in zip(layer, given, strict=True):
                tensor[:tokens].copy_(value)
        captured = self.captured[self.count]
        with torch.no_grad():
            for out in captured.outs:
                out.forget()
            captured.graph.replay()
        outs = [out.used.flatten(1)[:tokens].clone() for out in captured.outs]
        return [Tap(index, *given, out) for index, (given, out) in enumerate(zip(inputs, outs, strict=True))]

    # --- what SGLang's runner asks of a backend of graphs, by its names -----------------------------------------

    def capture_one(
        self,
        shape_key: Any,
        forward_fn: Callable[[], Any],
        dummies: Any = None,
        post_warmup_hook: Callable[[], None] | None = None,
        capture_inputs: Any = None,
    ) -> None:
        """Warm up, and record ``forward_fn``."""
        for _ in range(_WARM_UPS):
            forward_fn()
            if post_warmup_hook is not None:
                post_warmup_hook()
        graph = Graph(host=(self._own._full_cg_seq_lens_cpu,))
        with graph.capture():
            outs = forward_fn()
        leaf = self.backend._select_backend(self._own.capture_forward_mode)
        metadata = getattr(leaf, "forward_metadata", None)
        self.captured[shape_key.size] = Captured(graph, None, outs, metadata)

    def _layers(self, input_ids: Any, positions: torch.Tensor, forward_batch: Any, *embeds: Any, **more: Any) -> Any:
        """The model's body: what each layer gives, [tokens, ...]."""
        tokens = len(positions)
        outs = []
        for layer, (q, k, v) in zip(self.runner.radix_layers, self.inputs, strict=True):
            outs.append(Answer.of(layer(q[:tokens], k[:tokens], v[:tokens], forward_batch)))
        return outs

    def _layer_input(self) -> LayerInput:
        shapes = [(self.counts[-1], width) for width in self.world.layer_widths]
        q, k, v = (torch.zeros(shape, dtype=self.runner.dtype, device=self.world.device) for shape in shapes)
        return q, k, v
