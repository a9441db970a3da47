"""A layer as its model calls it: with the model's attention sinks, and with K and V that the call may change.

Sinks are a logit a head that takes weight and gives no value, as gpt-oss has them on every layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from stubs import sglang_dense, sglang_latent
from stubs.latent_worlds import UNABSORBED
from stubs.rotary import Rotary, rotary_of
from stubs.world import World

SPREAD = 2.0  # logits are drawn about so wide: sinks of either sign then take much of some rows and little of others


@dataclass(frozen=True, slots=True, eq=False)
class SinkAttention:
    """A model's attention: SGLang's RadixAttention, and the parameter [num_heads] that the model hands to it."""

    layer: Any
    sinks: torch.Tensor

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer(*args, sinks=self.sinks, **kwargs)


@dataclass(frozen=True, slots=True, eq=False)
class SpentAttention:
    """A model's attention whose K and V are not needed afterwards: SGLang's pools scale them in place."""

    layer: Any

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return self.layer(q, k.clone(), v.clone(), *args, **kwargs)


@dataclass(frozen=True, slots=True, eq=False)
class LatentAttention:
    """DeepSeek's attention. Absorbed: queries over latent and rotary key, handed in joined, or apart to some backends.

    ``dense`` attends without absorption, where the model does so. ``rotary``: over KV in fp8 some backends rotate, whose
    parts are handed in as they are before. Source: ``forward_absorb_core`` of SGLang's models/deepseek_common.
    """

    layer: Any
    world: World
    dense: Any = None
    rotary: Rotary | None = None

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, forward_batch: Any, **kwargs: Any) -> Any:
        world, latent = self.world, self.world.kv_lora_rank
        q = q.view(-1, world.num_heads, world.head_dim)
        names = None if self.dense is None else sglang_dense.method_of(self.dense, world, forward_batch)
        if names is not None:
            return sglang_dense.attend_densely(self.dense, names, q, k, forward_batch)
        k, v = k.unsqueeze(1), v.unsqueeze(1)
        if not sglang_latent.takes_parts(world, forward_batch):
            return self.layer(q, k, v, forward_batch, **kwargs)
        rope = self._unturned(q[..., latent:], k[..., latent:], forward_batch)
        return self.layer(q[..., :latent], v, v, forward_batch, **rope, **kwargs)

    def _unturned(self, q: torch.Tensor, k: torch.Tensor, forward_batch: Any) -> dict[str, Any]:
        """The rotary parts as the backend is to get them, and what it turns them by, if it does."""
        rotary = self.rotary
        if rotary is None or not sglang_latent.fuses_rope(self.world, rotary, forward_batch):
            return {"q_rope": q, "k_rope": k}
        back = {name: rotary.back(forward_batch.positions, part) for name, part in (("q_rope", q), ("k_rope", k))}
        return {**back, "cos_sin_cache": rotary.cos_sin_cache, "is_neox": rotary.is_neox_style}


@dataclass(frozen=True, slots=True, eq=False)
class CrossAttention:
    """Mllama's attention to what the encoder gave: K and V are handed in where it ran in this step, else None.

    Where no request of the batch has an encoder the layer is not called at all, and 0 is what those get that have none.
    Source: SGLang's models/mllama.py (skip_cross_attention, full_text_row_masked_out_mask), which asks the device whether
    to call it, and calls it always while a graph is captured; that batch alone has no lengths on the host.
    """

    layer: Any

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, forward_batch: Any, **kwargs: Any) -> Any:
        lens, told = forward_batch.encoder_lens, forward_batch.encoder_lens_cpu
        if lens is None or (told is not None and not any(told)):
            return torch.zeros_like(q)
        given = (k, v) if len(k) else (None, None)
        out = self.layer(q, *given, forward_batch, **kwargs)
        has_encoder = lens != 0
        if not forward_batch.forward_mode.is_decode():
            has_encoder = has_encoder.repeat_interleave(forward_batch.extend_seq_lens)
        return out.flatten(1) * has_encoder[:, None]


def sinks_of(world: World, layer: int) -> torch.Tensor:
    """The sinks of layer ``layer`` on the host: weights, which are a part of the world and not of the program's data.

    float32 for trtllm_mha as SGLang's choice of attention backend, else bfloat16. Source: SGLang's models/gpt_oss.py.
    """
    generator = torch.Generator().manual_seed(layer)
    drawn = torch.randn(world.num_heads, generator=generator) * SPREAD
    return drawn if world.prefill == "trtllm_mha" else drawn.bfloat16()


def as_called(world: World, layers: list[Any], *, is_draft: bool) -> list[Any]:
    """The model's attention layers as it calls them; drafts are Llamas, which have no sinks."""
    if world.kv_lora_rank:
        rotary = rotary_of(world)
        layers = [LatentAttention(layer, world, _dense(world, index), rotary) for index, layer in enumerate(layers)]
    layers = [CrossAttention(layer) if getattr(layer, "is_cross_attention", False) else layer for layer in layers]
    if world.kv_scale:
        layers = [SpentAttention(layer) for layer in layers]
    if world.sinks and not is_draft:
        layers = [SinkAttention(layer, sinks_of(world, index).to(world.device)) for index, layer in enumerate(layers)]
    return layers


def _dense(world: World, layer_id: int) -> Any:
    """What attends without absorption in this layer; None where no backend of the pair is asked to."""
    if not {world.prefill, world.decode} & set(UNABSORBED):
        return None
    return sglang_dense.dense_attention(world, sglang_dense.dense_layer(world, layer_id))
