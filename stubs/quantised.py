"""What KV is worth once a pool has stored it: rounded to fp8 and scaled back, where the world's pool does so."""

from __future__ import annotations

import torch

from stubs.sglang import KV_DTYPES
from stubs.world import World


def as_stored(world: World, values: torch.Tensor, half: str) -> torch.Tensor:
    """K or V (``half``) as later steps read it: float32 where the pool holds fp8, else ``values`` themselves."""
    if world.kv_dtype not in KV_DTYPES:
        return values
    scale = world.kv_scales[0 if half == "K" else 1]
    return (values / scale).to(KV_DTYPES[world.kv_dtype]).float() * scale
