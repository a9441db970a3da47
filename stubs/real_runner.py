"""The real runner: SGLang's ModelRunner on a tiny dummy-weight Llama, with a HybridAttnBackend that SGLang builds."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from stubs import sglang, sglang_chunk, sglang_model
from stubs.tap import Tap
from stubs.tiny_model import write_tiny_draft, write_tiny_model
from stubs.world import World

WEIGHT_SEED = 0  # any fixed number: weights are a part of the world, data comes from the program's seed


@dataclass(slots=True)
class RealRunner:
    """A started server's insides. ``taps`` holds the last forward's attention calls in the order they were made."""

    world: World
    server_args: Any
    model_config: Any
    model_runner: Any
    radix_layers: list[Any]
    taps: list[Tap] = field(default_factory=list)
    hooks: list[Any] = field(default_factory=list)

    @property
    def attn_backend(self) -> Any:
        return self.model_runner.attn_backend

    @property
    def req_to_token_pool(self) -> Any:
        return self.model_runner.req_to_token_pool

    @property
    def token_to_kv_pool(self) -> Any:
        return self.model_runner.token_to_kv_pool

    @property
    def token_to_kv_pool_allocator(self) -> Any:
        return self.model_runner.token_to_kv_pool_allocator

    def forward(self, forward_batch: Any) -> Any:
        """Run SGLang's forward over ``forward_batch``; returns its LogitsProcessorOutput. Fills ``taps`` afresh."""
        self.taps.clear()
        with torch.no_grad():
            result = self.model_runner.forward(forward_batch)
        if isinstance(result, tuple):  # 0.5.11 and 0.5.12 idle: (logits_output, can_run_graph)
            return result[0]
        return getattr(result, "logits_output", result)

    def rebuild_backend(self) -> Any:
        """A fresh wrapper over the same pools, assembled by SGLang's own code; the runner keeps the one it has."""
        return sglang_model.make_attn_backend(self.model_runner)

    def close(self) -> None:
        """Detach the taps and drop what SGLang keeps for the whole process. The runner cannot be used afterwards."""
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()
        self.taps.clear()
        self.radix_layers.clear()
        self.model_runner = None
        sglang_model.stop_process()


def build_real_runner(world: World) -> RealRunner:
    """Start SGLang's ModelRunner for ``world``, after ``stubs.imports.install()`` and ``prepare_platform()``.

    Several may be built one after another in one process; building one ends the one before.
    Raises Refused where SGLang rejects the settings; other errors of its start-up propagate as they are.
    """
    with tempfile.TemporaryDirectory(prefix="seamripper-model-") as name:
        folder = Path(name)
        target = str(write_tiny_model(world, folder))
        draft = str(write_tiny_draft(world, folder)) if world.is_speculative else ""
        args = sglang.server_args(world, target, draft)
        config = sglang.model_config(args, target)
        sglang_chunk.make_local(world, config)
        sglang_model.start_process(args, config)
        model_runner = sglang_model.make_model_runner(args, config)
    reweight(model_runner.model, WEIGHT_SEED)
    sglang_model.skip_empty_rotary(model_runner.model)
    layers = sglang_model.attention_layers(model_runner.model)
    sglang_chunk.mark(world, layers)
    runner = RealRunner(world, args, config, model_runner, layers)
    _attach_taps(runner)
    return runner


def reweight(model: torch.nn.Module, seed: int) -> None:
    """Give ``model`` weights that make attention far from uniform, where SGLang's dummy ones (1e-3) hide errors.

    Norms are 1 and biases 0; matrices are normal with variance 1 / inputs, so that q, k and v have unit scale.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.dim() < 2:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            drawn = torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5
            parameter.copy_(drawn.to(parameter.dtype))


def _attach_taps(runner: RealRunner) -> None:
    for index, layer in enumerate(runner.radix_layers):

        def record(_module: Any, inputs: tuple[Any, ...], out: Any, index: int = index) -> None:
            q, k, v = (tensor.detach().clone() for tensor in inputs[:3])
            runner.taps.append(Tap(index, q, k, v, out.detach().clone()))

        runner.hooks.append(layer.register_forward_hook(record))
