"""A Tap: what one attention layer was given and gave in one forward, on either runner."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True, slots=True)
class Tap:
    """``q`` [T, num_heads * head_dim], ``k``, ``v`` [T, num_kv_heads * head_dim], ``out`` [T, num_heads * head_dim].

    Of cross attention ``k`` and ``v`` have a row for each token that the step's encoder gives.
    ``stored``: whether the layer wrote to KV buffers though it was told not to (``World.save_kv_cache`` 0).
    All in the world's dtype and on its device; on the real runner after the rotary embedding.
    """

    layer_index: int
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
    stored: bool = False

    @property
    def on_host(self) -> Tap:
        """The same in host memory, where it is compared with the truth; itself where it is there already."""
        return replace(self, q=self.q.cpu(), k=self.k.cpu(), v=self.v.cpu(), out=self.out.cpu())
