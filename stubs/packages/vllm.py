"""Stands in for the one vllm operator that SGLang's rotary embedding calls on a CPU; nothing else of vllm can run."""

from __future__ import annotations

from types import ModuleType

import torch

from stubs.packages.unwritten import UnwrittenModule

# Up to 0.5.7 SGLang imports its norms and activations from vllm where it sees no GPU; attention calls none of them.
_MODEL_EXECUTOR = tuple(
    f"vllm.model_executor{rest}" for rest in ("", ".layers", ".layers.layernorm", ".layers.activation")
)
MODULES = ("vllm", "vllm._custom_ops", *_MODEL_EXECUTOR)
OFFERS = ("vllm._custom_ops.rotary_embedding",)


def rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool = True,
) -> None:
    """Rotate query and key ``[tokens, heads * head_size]`` in place.

    ``positions`` is int64 ``[tokens]``; ``cos_sin_cache`` is ``[positions, rotary_dim]``, cosines in the first half
    and sines in the second. Neox style pairs dimension i with i + rotary_dim / 2, the other style 2i with 2i + 1.
    """
    rotary_dim = cos_sin_cache.shape[-1]
    half = rotary_dim // 2
    cos, sin = (part[:, None] for part in cos_sin_cache.index_select(0, positions.flatten()).chunk(2, dim=-1))
    for states in (query, key):
        if states is None or states.numel() == 0:
            continue
        heads = states.view(positions.numel(), -1, head_size)
        first = heads[..., :half] if is_neox else heads[..., 0:rotary_dim:2]
        second = heads[..., half:rotary_dim] if is_neox else heads[..., 1:rotary_dim:2]
        turned = first * cos - second * sin, second * cos + first * sin
        first.copy_(turned[0])
        second.copy_(turned[1])


def module(name: str) -> ModuleType:
    """The stand-in for ``vllm`` or one of ``MODULES``."""
    if name in _MODEL_EXECUTOR:
        return UnwrittenModule(name)
    shell = ModuleType(name, "seamripper's stand-in for vllm; see stubs/packages.")
    if name == "vllm":
        shell.__path__ = []
    else:
        shell.rotary_embedding = rotary_embedding  # type: ignore[attr-defined]
    return shell
