"""Draws what a layer is given: q, k and v of a step, from the program's seed, the step and the layer alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch

from stubs.sglang import DTYPES
from stubs.world import World

# One layer's attention input: q [T, heads * dim], k [T, kv_heads * dim], v [T, kv_heads * v_dim].
LayerInput = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
# Draws the input of a layer for so many tokens.
DrawInput = Callable[[int, int], LayerInput]

# In float32 q is drawn wide: attention is then far from uniform, and a limit on logits or a key too many shows.
# Narrower dtypes round products of q and k, so that their error would grow with q beyond the tolerance.
Q_SCALE = 4


def draw_inputs(world: World, seed: int, step: int, layer: int, tokens: int) -> LayerInput:
    """q [tokens, num_heads * head_dim], k and v [tokens, num_kv_heads * theirs], normal, on the world's device.

    With ``logit_shift`` all k lie to one side of 0, and all q to the same or the other, so that every logit is about
    that far from 0, and no query sees a key of an ordinary logit. Latent attention's values are the first columns of k.
    """
    digest = hashlib.sha256(f"{seed}/{step}/{layer}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    widths = world.layer_widths
    # Drawn on the host, so that a program means the same on every device.
    q, k, v = (torch.randn(tokens, width, generator=generator) for width in widths)
    q = q * (Q_SCALE if world.dtype == "float32" else 1)
    if world.logit_shift:
        scaling = (world.query_scalar or world.head_dim) ** -0.5
        offset = (abs(world.logit_shift) / scaling / world.head_dim) ** 0.5  # of each of head_dim products
        q, k = q + (offset if world.logit_shift > 0 else -offset), k + offset
    if world.kv_lora_rank:
        v = k[:, : world.kv_lora_rank].clone()
    dtype = DTYPES[world.dtype]
    return q.to(dtype).to(world.device), k.to(dtype).to(world.device), v.to(dtype).to(world.device)
