"""The real runner: SGLang's ModelRunner on a tiny dummy-weight Llama, with a HybridAttnBackend that SGLang builds."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from stubs import sglang_model
from stubs.tiny_model import write_tiny_draft, write_tiny_model
from stubs.world import World

WEIGHT_SEED = 0  # any fixed number: weights are a part of the world, data comes from the program's seed


@dataclass(frozen=True, slots=True)
class Tap:
    """What one attention layer of the model was given and gave in one forward.

    ``q`` [T, num_heads * head_dim], ``k``, ``v`` [T, num_kv_heads * head_dim] after the rotary embedding,
    ``out`` [T, num_heads * head_dim]; all copies, in the world's dtype.
    """

    layer_index: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor


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
        if isinstance(result, tuple):  # 0.5.11 gives (logits_output, can_run_graph) on some paths
            return result[0]
        return getattr(result, "logits_output", result)

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
        server_args = sglang_model.make_server_args(server_settings(world, folder))
        model_config = sglang_model.make_model_config(server_args, target, is_draft=False)
        sglang_model.start_process(server_args, model_config)
        model_runner = sglang_model.make_model_runner(server_args, model_config)
    reweight(model_runner.model, WEIGHT_SEED)
    layers = [m for m in model_runner.model.modules() if isinstance(m, sglang_model.radix_attention_class())]
    runner = RealRunner(world, server_args, model_config, model_runner, layers)
    _attach_taps(runner)
    return runner


def server_settings(world: World, folder: Path) -> dict[str, Any]:
    """ServerArgs' keyword arguments for ``world``, whose models lie under ``folder``."""
    target = str(folder / "target")
    settings: dict[str, Any] = {
        "model_path": target,
        "tokenizer_path": target,
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "device": world.device,
        "dtype": world.dtype,
        "prefill_attention_backend": world.prefill,
        "decode_attention_backend": world.decode,
        "page_size": world.page_size,
        "context_length": world.context_len,
        "max_running_requests": world.max_running_requests,
        "max_total_tokens": world.max_total_tokens,
        "mem_fraction_static": sglang_model.MEM_FRACTION,
        "disable_cuda_graph": True,
        "disable_overlap_schedule": not world.overlap,
    }
    if world.is_speculative:
        settings |= {
            "speculative_algorithm": world.spec_algorithm,
            "speculative_draft_model_path": str(write_tiny_draft(world, folder)),
            "speculative_attention_mode": world.spec_mode,
            "speculative_num_steps": world.spec_steps,
            "speculative_eagle_topk": world.spec_topk,
            "speculative_num_draft_tokens": world.spec_draft_tokens,
        }
    return settings


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

        def record(_module: Any, args: tuple[Any, ...], out: Any, index: int = index) -> None:
            q, k, v = (tensor.detach().clone() for tensor in args[:3])
            runner.taps.append(Tap(index, q, k, v, out.detach().clone()))

        runner.hooks.append(layer.register_forward_hook(record))
