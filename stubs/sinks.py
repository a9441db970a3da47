"""Attention sinks: a logit a head that takes weight and gives no value, as gpt-oss has them on every layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from stubs.world import World

SPREAD = 2.0  # logits are drawn about so wide: sinks of either sign then take much of some rows and little of others


@dataclass(frozen=True, slots=True, eq=False)
class SinkAttention:
    """A model's attention: SGLang's RadixAttention, and the parameter [num_heads] that the model hands to it."""

    layer: Any
    sinks: torch.Tensor

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer(*args, sinks=self.sinks, **kwargs)


def sinks_of(world: World, layer: int) -> torch.Tensor:
    """The sinks of layer ``layer`` on the host: weights, which are a part of the world and not of the program's data.

    float32 for trtllm_mha as SGLang's choice of attention backend, else bfloat16. Source: SGLang's models/gpt_oss.py.
    """
    generator = torch.Generator().manual_seed(layer)
    drawn = torch.randn(world.num_heads, generator=generator) * SPREAD
    return drawn if world.prefill == "trtllm_mha" else drawn.bfloat16()


def with_sinks(world: World, layers: list[Any]) -> list[Any]:
    """The model's attention layers as it calls them."""
    return [SinkAttention(layer, sinks_of(world, index).to(world.device)) for index, layer in enumerate(layers)]
