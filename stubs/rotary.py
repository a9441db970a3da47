"""Rotary positions of a model with latent attention, as some backends apply them themselves: turns that lose nothing.

Inputs are drawn as they are after the rotation. Where a backend is to rotate, it gets them turned back. Position p turns
each pair of columns by p quarters, so that turning back and forth is exact in every dtype, and a position that is off by
one, two or three shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from stubs.world import World


@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """What SGLang reads off a model's rotary embedding. ``cos_sin_cache`` float32 [positions, width]: cosines, then sines.

    Pairs are neighbours, as in DeepSeek's models.
    """

    cos_sin_cache: torch.Tensor
    is_neox_style: bool = False

    def __call__(self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``q`` and ``k`` [T, heads, width], turned."""
        return self._turned(positions, q, 1), self._turned(positions, k, 1)

    def back(self, positions: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """``values`` [T, heads, width] as they were before the rotation."""
        return self._turned(positions, values, -1)

    def _turned(self, positions: torch.Tensor, values: torch.Tensor, way: int) -> torch.Tensor:
        cos, sin = self.cos_sin_cache[positions].to(values.dtype)[:, None].chunk(2, dim=-1)
        one, other = values[..., 0::2], values[..., 1::2]
        turned = one * cos - other * sin * way, other * cos + one * sin * way
        return torch.stack(turned, dim=-1).flatten(-2)


def rotary_of(world: World) -> Rotary | None:
    """The rotary embedding that a model of ``world`` hands on; None where no backend rotates, which is but for KV in fp8."""
    if not world.kv_lora_rank or world.kv_dtype == "auto":
        return None
    pairs = world.qk_rope_head_dim // 2
    quarter = torch.arange(world.context_len + 2 * world.spec_reserve + world.page_size, device=world.device) % 4
    cos, sin = (torch.tensor(turn, device=world.device)[quarter] for turn in ([1.0, 0, -1, 0], [0.0, 1, 0, -1]))
    return Rotary(torch.cat([turn[:, None].expand(-1, pairs) for turn in (cos, sin)], dim=1).contiguous())
