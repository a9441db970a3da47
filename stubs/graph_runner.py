"""Graph runners of one backend in one mode: captured at several batch sizes at start-up, replayed padded afterwards.

They follow SGLang's own (DecodeCudaGraphRunner and the runner of the draft's extend): static buffers in which a padded
row is request row 0, slot 0, position 0 and the backend's fill value, metadata planned by the backend outside of the
graph, and nothing else between two replays. What they do not have is what lies around attention: logits, LoRA, DP
padding, compiled forwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch

from stubs import sglang, sglang_graph
from stubs.answer import Answer
from stubs.graph import Graph, HostRead
from stubs.graph_buffers import Buffers
from stubs.layer import layer_of
from stubs.layer_inputs import LayerInput
from stubs.tap import Tap
from stubs.world import World


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """One graph, the batch it was captured with, and what its layers gave: [tokens, heads * dim] each.

    ``metadata`` is the serving backend's, of which the graph reads the tensors.
    """

    graph: Graph
    batch: Any
    outs: Sequence[Answer]
    metadata: Any


class GraphRunner:
    """Graphs of one mode on one backend of a fake runner.

    SGLang's prepare functions ask ``can_run_graph`` and call ``load_batch`` (``can_run`` and ``replay_prepare`` up to
    0.5.13) themselves. ``width`` is the rows of q that a request has in this mode.
    """

    def __init__(self, runner: Any, backend: Any, mode: str, width: int) -> None:
        self.runner, self.backend, self.mode, self.width = runner, backend, mode, width
        self.world: World = runner.world
        self.sizes = self.world.graph_sizes
        self.requests = self.sizes[-1]
        self.backend.init_cuda_graph_state(self.requests, self.requests * width)
        self.fill = sglang_graph.fill_value(backend)
        self.buffers = self._buffers()
        self.inputs = [self._layer_input(layer) for layer in range(len(runner.radix_layers))]
        self.captured: dict[int, Captured] = {}
        self.size = 0  # of the graph that the next replay takes, padding included
        self.loaded: Any = None  # the batch that it was loaded for

    def capture(self) -> None:
        """Capture every size, the largest first as SGLang does."""
        with torch.no_grad(), sglang_graph.capture_mode():
            for size in reversed(self.sizes):
                self.captured[size] = self._capture(size)

    @property
    def host_reads(self) -> list[HostRead]:
        return [read for captured in self.captured.values() for read in captured.graph.host_reads]

    def can_run_graph(self, batch: Any) -> bool:
        """SGLang's rule: no more requests than were captured, of as many rows each where the release asks.

        In models that have encoders each has one. Source: the runner's is_encoder_lens_supported. A rank among several
        replays none here: no gather says that all could (can_run_dp_cuda_graph).
        """
        if batch.global_num_tokens_cpu is not None:
            return False
        width = getattr(batch.spec_info, "num_tokens_per_req", 0) or 0
        fits = width <= 0 or width == self.width or not sglang_graph.asks_for_width()
        encoders = self.buffers.encoder_lens is None or bool((batch.encoder_lens > 0).all())
        return batch.batch_size <= self.requests and fits and encoders

    can_run = can_run_graph

    def size_for(self, requests: int) -> int:
        """The size that so many requests are padded to."""
        return self.sizes[bisect_left(self.sizes, requests)]

    def step(self, batch: Any, inputs: Sequence[LayerInput]) -> list[Tap]:
        """Replay the step of ``batch`` on these layer inputs; SGLang's prepare function may have loaded it already."""
        if self.loaded is not batch:
            self.load_batch(batch)
        self.loaded = None
        outs = self.replay(inputs)
        return [Tap(index, *given, out) for index, (given, out) in enumerate(zip(inputs, outs, strict=True))]

    def load_batch(self, batch: Any) -> None:
        """Fill the buffers and plan the metadata of the graph that is to be replayed."""
        self.size, self.loaded = self._size_of(batch), batch
        if self._slots(self.size) != batch.batch_size:
            self.buffers.pad(self.fill, self.width)
        self.buffers.fill(batch)
        sglang_graph.plan_replay(self.backend, self._view(batch))

    replay_prepare = load_batch

    @property
    def metadata(self) -> Any:
        """What the graph loaded last reads."""
        return self.captured[self.size].metadata

    def replay(self, inputs: Sequence[LayerInput]) -> list[torch.Tensor]:
        """Replay the graph loaded last on these layer inputs; the live rows of what each layer gave."""
        tokens = len(inputs[0][0])
        for static, given in zip(self.inputs, inputs, strict=True):
            for tensor, value in zip(static, given, strict=True):
                tensor[:tokens].copy_(value)
        return self.play(tokens)

    def play(self, tokens: int) -> list[torch.Tensor]:
        """Replay the graph loaded last; the first rows of what its layers gave, NaN where they gave nothing."""
        captured = self.captured[self.size]
        with torch.no_grad():
            for out in captured.outs:
                out.forget()
            captured.graph.replay()
        return [out.used[:tokens].clone() for out in captured.outs]

    # --- what the modes differ in ----------------------------------------------------------------------------

    def _size_of(self, batch: Any) -> int:
        """The size of the graph that replays this batch."""
        return self.size_for(batch.batch_size)

    def _slots(self, size: int) -> int:
        """Requests that the graph of a size has room for, beside its ``size * width`` rows of q."""
        return size

    def padded(self, rows: int) -> int:
        """Rows of a step's plan, padding included."""
        return self.size_for(rows)

    def _buffers(self) -> Buffers:
        tokens, has_encoder = self.requests * self.width, bool(self.world.encoder_decoder)
        return Buffers.make(self.requests, tokens, self.width, self.fill, self.world.device, has_encoder=has_encoder)

    def _spec_info(self, size: int) -> Any:
        """The spec input that this mode is captured with."""
        if self.mode == "DECODE":
            return None
        mask = torch.ones(self._mask_cells(), dtype=torch.bool, device=self.world.device)
        return sglang_graph.verify_input_to_capture(self.world, mask, self._hidden(size), self.backend)

    def _mask_cells(self) -> int:
        return (self.requests * self.fill + self.requests * self.width) * self.width  # as DecodeInputBuffers has it

    def _extra_fields(self, size: int) -> dict[str, Any]:
        return {}

    def _view(self, batch: Any) -> Any:
        return self._replay_view(batch)

    def _replay_view(self, batch: Any) -> Any:
        slots, tokens = self._slots(self.size), self.size * self.width
        return sglang_graph.replay_view(batch, self.buffers, slots, tokens, self.fill, self.mode)

    # --- capture ---------------------------------------------------------------------------------------------

    def _capture(self, size: int) -> Captured:
        batch = self._batch(size)
        graph = Graph(host=(self.buffers.seq_lens_cpu,))
        with sglang.forward_context(self.backend, batch):
            self._plan_capture(batch)
            self._run(batch)
            sglang_graph.after_warm_up(self.backend)
            with graph.capture():
                outs = self._run(batch)
        select = getattr(self.backend, "_select_backend", None)
        leaf = self.backend if select is None else select(batch.forward_mode)
        return Captured(graph, batch, outs, getattr(leaf, "forward_metadata", None))

    def _plan_capture(self, batch: Any) -> None:
        sglang_graph.plan_capture(self.backend, batch)

    def _run(self, batch: Any) -> list[Answer]:
        sglang_graph.plan_in_graph(self.backend, batch)
        tokens = len(batch.positions)
        outs = []
        for layer, (q, k, v) in zip(self.runner.radix_layers, self.inputs, strict=True):
            outs.append(Answer.of(layer(q[:tokens], k[:tokens], v[:tokens], batch)))
        return outs

    def _batch(self, size: int) -> Any:
        buffers, tokens, slots = self.buffers, size * self.width, self._slots(size)
        buffers.pad(self.fill, self.width)
        spec_info = self._spec_info(size)
        fields = {
            "batch_size": slots,
            "input_ids": buffers.input_ids[:tokens],
            "positions": buffers.positions[:tokens],
            "out_cache_loc": buffers.out_cache_loc[:tokens],
            "req_pool_indices": buffers.req_pool_indices[:slots],
            "seq_lens": buffers.seq_lens[:slots],
            "seq_lens_cpu": buffers.seq_lens_cpu[:slots],
            "orig_seq_lens": buffers.seq_lens[:slots],
            "seq_lens_sum": slots * self.fill,
            "spec_info": spec_info,
            "capture_hidden_mode": sglang_graph.hidden_mode(
                "NULL" if spec_info is None or self.world.spec_algorithm == "NGRAM" else "FULL"
            ),
        }
        if buffers.encoder_lens is not None:
            fields["encoder_lens"] = buffers.encoder_lens[:size]
        fields |= self._extra_fields(size)
        return sglang_graph.capture_batch(self.runner, self.backend, self.mode, **fields)

    def _hidden(self, size: int) -> torch.Tensor:
        shape = (size * self.width, self.runner.model_config.hidden_size)
        return torch.zeros(shape, dtype=self.runner.dtype, device=self.world.device)

    def _layer_input(self, layer: int) -> LayerInput:
        """Static q, k and v; of cross attention no k and v, for no encoder runs in a step that is replayed."""
        world, tokens = self.world, self.requests * self.width
        given = 0 if layer_of(world, layer).is_cross else tokens
        shapes = list(zip((tokens, given, given), world.layer_widths, strict=True))
        q, k, v = (torch.zeros(shape, dtype=self.runner.dtype, device=world.device) for shape in shapes)
        return q, k, v


class ExtendGraphRunner(GraphRunner):
    """The draft model's extend over the verified window."""

    def _spec_info(self, size: int) -> Any:
        return sglang_graph.extend_input_to_capture(self.width, size, self._hidden(size), self.world.device)

    def _extra_fields(self, size: int) -> dict[str, Any]:
        return {
            "extend_seq_lens": self.buffers.extend_seq_lens[:size],
            "extend_seq_lens_cpu": [self.width] * size,
        }

    def _view(self, batch: Any) -> Any:
        """As SGLang's runner: whole buffers, lengths of windows in the spec input, locations unpadded."""
        size, buffers = self.size, self.buffers
        info = copy(batch.spec_info)  # SGLang changes it in place; the batch is to be run eagerly, too
        buffers.extend_seq_lens[: batch.batch_size].copy_(batch.extend_seq_lens)
        info.extend_seq_lens_cpu = [self.width] * size
        info.extend_seq_lens_tensor = buffers.extend_seq_lens[:size]
        if size != batch.batch_size:
            info.positions = buffers.positions[: len(batch.positions)]
            for name in ("num_correct_drafts", "num_accept_tokens", "accept_length"):  # the last up to 0.5.10
                if hasattr(info, name):
                    setattr(info, name, _padded(getattr(info, name), size, self.width))
        view = self._replay_view(batch)
        view.req_pool_indices, view.seq_lens = buffers.req_pool_indices, buffers.seq_lens
        view.seq_lens_cpu = None if batch.seq_lens_cpu is None else buffers.seq_lens_cpu
        view.out_cache_loc = buffers.out_cache_loc[: len(batch.out_cache_loc)]
        view.input_ids, view.spec_info = batch.input_ids, info
        return view


def _padded(counts: torch.Tensor | None, size: int, width: int) -> torch.Tensor | None:
    if counts is None:
        return None
    return torch.cat([counts, counts.new_full((size - len(counts),), width)])
