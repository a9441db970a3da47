"""FakeServer: the fake runners of one world, and the backends and graphs that SGLang would start for them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stubs import (
    sglang,
    sglang_batch,
    sglang_chunk,
    sglang_draft,
    sglang_latent,
    sglang_linear,
    sglang_memory,
    sglang_window,
)
from stubs.draft_steps import DraftRun, run_draft
from stubs.eager_step import run_layers
from stubs.fake_runner import FakeModelRunner, guarded
from stubs.graph_draft import DraftGraphRunner
from stubs.graphs import Graphs, capture_graphs
from stubs.layer import layer_of
from stubs.layer_inputs import DrawInput, LayerInput
from stubs.model_attention import as_called
from stubs.plan import StepPlan
from stubs.refusal import Refused
from stubs.sglang_overlap import overlapped_backend, run_overlapped
from stubs.tap import Tap
from stubs.tiny_model import write_tiny_draft, write_tiny_model
from stubs.world import World


class FakeServer:
    """One world's target runner and, where it speculates, its draft runner over the same request rows and slots."""

    def __init__(
        self,
        world: World,
        target: FakeModelRunner,
        draft: FakeModelRunner | None,
        draft_decode: Any,
        graphs: Graphs,
    ) -> None:
        """``draft_decode`` is the draft's multi-step backend, or None where it takes no steps."""
        self.world = world
        self.target = target
        self.draft = draft
        self.graphs = graphs
        self.draft_decode = draft_decode

    def forward(self, plan: StepPlan, draw: DrawInput) -> list[Tap]:
        """Plan the step's metadata and run its attention layers on drawn q, k and v; one Tap per layer."""
        layers = range(len(plan.runner.radix_layers))
        inputs = [self._drawn(plan, draw, layer) for layer in layers]
        if plan.draft is not None:
            if isinstance(plan.graph, DraftGraphRunner):
                return plan.graph.draft(plan.draft, plan.forward_batch, inputs)
            return run_draft(plan.draft, plan.runner, self.world, plan.forward_batch, inputs)
        if plan.graph is not None:
            return plan.graph.step(plan.forward_batch, inputs)
        return self._run(plan, plan.runner.attn_backend, inputs)

    def _drawn(self, plan: StepPlan, draw: DrawInput, layer: int) -> LayerInput:
        """A layer's input: of cross attention K and V are of the tokens that the step's encoder gives."""
        if not layer_of(self.world, layer, on_draft=plan.on_draft).is_cross:
            return draw(layer, plan.tokens)
        q, k, v = draw(layer, max(plan.tokens, plan.encoded))
        return q[: plan.tokens], k[: plan.encoded], v[: plan.encoded]

    def replay(self, plan: StepPlan, taps: Sequence[Tap], backend: Any) -> list[Tap]:
        """The step once more on another wrapper, with the inputs that its layers had."""
        inputs = [(tap.q, tap.k, tap.v) for tap in taps]
        return self._run(plan, backend, inputs)

    def _is_split(self, plan: StepPlan) -> bool:
        return self.world.wrapper == "tbo" and not plan.on_draft and not plan.is_padded and bool(plan.rows)

    def _run(self, plan: StepPlan, backend: Any, inputs: Sequence[LayerInput]) -> list[Tap]:
        if self._is_split(plan):
            return run_overlapped(backend, plan.runner.radix_layers, plan.forward_batch, inputs)
        writes_itself = None if self.world.save_kv_cache else plan.runner.token_to_kv_pool
        return run_layers(backend, plan.runner.radix_layers, plan.forward_batch, inputs, writes_itself)

    def eagerly(self, plan: StepPlan, taps: Sequence[Tap]) -> tuple[list[Tap], Any]:
        """A replayed step without its graph, on a fresh backend, with the inputs that its layers had."""
        if plan.draft is not None:
            backend = sglang_draft.build_draft_decode_backend(plan.runner, self.world)
            run, inputs = DraftRun(backend, plan.draft.logits), [(tap.q, tap.k, tap.v) for tap in taps]
            return run_draft(run, plan.runner, self.world, plan.forward_batch, inputs), backend
        backend = build_draft_backend(plan.runner) if plan.on_draft else self.rebuild_backend()
        if self._is_split(plan):
            inputs = [(tap.q, tap.k, tap.v) for tap in taps]
            return run_overlapped(backend, plan.runner.radix_layers, plan.forward_batch, inputs, is_fresh=True), backend
        if plan.eager is not None:
            return self.replay(replace(plan, forward_batch=plan.eager(backend)), taps, backend), backend
        if not sglang_batch.needs_forward_metadata(plan.forward_batch):  # planned already, for the graph
            backend.init_forward_metadata(plan.forward_batch)
        return self.replay(plan, taps, backend), backend

    def rebuild_backend(self) -> Any:
        """A fresh wrapper over the target's pools, without any history."""
        return build_target_backend(self.target)

    def close(self) -> None:
        """Nothing of a fake server outlives it."""


def build_fake_server(world: World) -> FakeServer:
    """Start the fake server of ``world``. Raises Refused where SGLang turns the world down."""
    with tempfile.TemporaryDirectory(prefix="seamripper-model-") as name:
        folder = Path(name)
        plain = replace(world, sliding_window=0, logit_cap=0)  # a Llama config has neither; the layers carry them
        draft_path = str(_draft_path(world, plain, folder)) if world.is_speculative else ""
        args, config = _configured(world, plain, folder, draft_path)
        sglang.publish(args, config)
        sglang.tell_of_mla(args, use_mla_backend=sglang_latent.is_latent(config))
        draft_config = sglang.model_config(args, draft_path, is_draft=True) if world.has_draft_model else None
    request_pool = sglang_linear.request_pool if world.wrapper == "linear" else sglang_memory.request_pool
    rows = request_pool(world, world.context_len + sglang_memory.row_extra(world))
    row_guards = guarded(rows, ("req_to_token",))
    pool = _target_pool(world, rows)
    target = FakeModelRunner(world, args, config, rows, pool)
    allocator = sglang_window.hybrid_allocator if world.window_tokens else sglang_memory.allocator
    target.token_to_kv_pool_allocator = allocator(world, pool)
    target.guards += row_guards
    _assemble(target, world.num_layers)
    target.attn_backend = build_target_backend(target)
    if not world.has_draft_model:
        return FakeServer(world, target, None, None, capture_graphs(world, target, None, None))
    draft = FakeModelRunner(world, args, draft_config, rows, _pool(world, 1))
    draft.is_draft_worker = True
    draft.sliding_window_size = layer_of(world, 0).window or None
    draft.token_to_kv_pool_allocator = target.token_to_kv_pool_allocator
    draft.guards += row_guards
    _assemble(draft, 1)
    draft.attn_backend = build_draft_backend(draft)
    steps = sglang_draft.build_draft_decode_backend(draft, world) if world.spec_steps > 1 else None
    return FakeServer(world, target, draft, steps, capture_graphs(world, target, draft, steps))


def _draft_path(world: World, plain: World, folder: Path) -> Path:
    """The draft's config: of a Llama, or of a layer like those of a target with latent attention."""
    if not world.kv_lora_rank:
        return write_tiny_draft(plain, folder)
    return write_tiny_draft(plain, folder, sglang_latent.DRAFT_ARCHITECTURE, sglang_latent.draft_config_fields(world))


def _target_pool(world: World, rows: Any) -> Any:
    """The target's KV; ``rows`` is its pool of request rows."""
    if world.window_tokens:
        return sglang_window.hybrid_pool(world)
    if world.wrapper == "linear":
        return sglang_linear.kv_pool(world, rows)
    return _pool(world, world.num_layers)


def _pool(world: World, layers: int) -> Any:
    """One pool for ``layers`` layers, of the kind that SGLang makes for them."""
    if world.kv_lora_rank:
        return sglang_latent.latent_pool(world, layers)
    return sglang_memory.kv_pool(world, layers)


def _configured(world: World, plain: World, folder: Path, draft_path: str) -> tuple[Any, Any]:
    """SGLang's ServerArgs and ModelConfig of the model; ``plain`` is ``world`` without what a Llama's config lacks."""
    sglang_window.refuse_dims(world)
    sglang_chunk.refuse_backends(world)
    for architecture in sglang_window.architectures(world):
        fields = sglang_window.config_fields(world, architecture)
        # A folder each: SGLang remembers what it read in one.
        path = str(write_tiny_model(plain, folder / architecture, architecture, fields))
        args = sglang.server_args(world, path, draft_path)
        config = sglang.model_config(args, path)
        if sglang_window.is_hybrid(config) == bool(world.window_tokens):
            sglang_latent.check_arch(world, config)
            if world.linear_before:
                sglang_linear.check_known(config)
            return args, config
    raise Refused("this release knows no model with a pool of its own for layers with a window")


def build_target_backend(target: FakeModelRunner) -> Any:
    """What the target runs on: the wrapper over two halves, in one more where the world has it."""
    world = target.world

    def hybrid() -> Any:
        return sglang.build_hybrid(target, world.prefill, world.decode)

    if world.wrapper == "linear":
        return sglang_linear.linear_backend(target)
    return overlapped_backend(hybrid) if world.wrapper == "tbo" else hybrid()


def build_draft_backend(draft: FakeModelRunner) -> Any:
    """What the draft model extends on: the backend of the draft worker's factory where it makes one (0.5.16 on)."""
    hybrid = sglang.build_hybrid(draft, draft.world.prefill, draft.world.decode)
    return sglang_draft.build_draft_extend_backend(draft, draft.world) or hybrid


def _assemble(runner: FakeModelRunner, layers: int) -> None:
    runner.kv_index_translator = sglang_memory.index_translator(runner)
    is_draft = runner.is_draft_worker
    runner.radix_layers = [sglang.radix_attention(runner.world, index, on_draft=is_draft) for index in range(layers)]
    runner.model.extend(runner.radix_layers)
    runner.radix_layers = as_called(runner.world, runner.radix_layers, is_draft=is_draft)
