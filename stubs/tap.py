"""A Tap: what one attention layer was given and gave in one forward, on either runner."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Tap:
    """``q`` [T, num_heads * head_dim], ``k``, ``v`` [T, num_kv_heads * head_dim], ``out`` [T, num_heads * head_dim].

    All in the world's dtype; on the real runner after the rotary embedding.
    """

    layer_index: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
