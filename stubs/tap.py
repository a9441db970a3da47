"""A Tap: what one attention layer was given and gave in one forward, on either runner."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Tap:
    """``q`` [T, num_heads * head_dim], ``k``, ``v`` [T, num_kv_heads * head_dim], ``out`` [T, num_heads * head_dim].

    All in the world's dtype and on its device; on the real runner after the rotary embedding.
    """

    layer_index: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor

    @property
    def on_host(self) -> Tap:
        """The same in host memory, where it is compared with the truth; itself where it is there already."""
        return Tap(self.layer_index, self.q.cpu(), self.k.cpu(), self.v.cpu(), self.out.cpu())
