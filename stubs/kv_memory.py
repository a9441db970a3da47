"""The K and V buffers of a pool, layer by layer, and in which row of each a token's KV lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True, eq=False)
class KVBuffer:
    """``tensor`` [rows, num_kv_heads, head_dim] is K or V (``half``) of layer ``layer``, of values of ``dtype``.

    A pool keeps fp8 as uint8.
    ``mapping`` int64 [slots + 1], in a pool of window layers: slot -> row, 0 where the token's KV was given up. Where
    it is None, a slot's number is its row's.
    """

    half: str
    layer: int
    tensor: torch.Tensor
    mapping: torch.Tensor | None = None
    dtype: torch.dtype | None = None

    @property
    def name(self) -> str:
        return f"{self.half} of layer {self.layer}"

    def encode(self, values: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """What the buffer holds for ``values``, in its tensor's dtype."""
        if self.dtype is None or self.dtype == self.tensor.dtype:
            return values.to(self.tensor.dtype)
        return (values / scale).to(self.dtype).view(self.tensor.dtype)

    def poison(self, rows: torch.Tensor | slice) -> None:
        """Make ``rows`` hold what nobody wrote: large and finite, so that a stray read shows."""
        is_narrow = self.dtype is not None and self.dtype.itemsize == 1
        value = torch.tensor(POISON_FP8 if is_narrow else POISON)
        self.tensor[rows] = self.encode(value).to(self.tensor.device)

    def rows(self, slots: Sequence[int]) -> list[int]:
        """The rows of ``slots``, of those that have one."""
        if self.mapping is None:
            return list(slots)
        return [row for row in self.mapping[list(slots)].tolist() if row > 0]

    def rows_at(self, slots: torch.Tensor) -> torch.Tensor:
        """int64: the row of each of ``slots``, 0 for a slot that has none."""
        return slots if self.mapping is None else self.mapping[slots]


# What a slot that no live request owns holds in K and V. e4m3 ends at 448, and what is above becomes NaN.
POISON = 1000.0
POISON_FP8 = 240.0


def kv_memory(pool: Any) -> list[KVBuffer]:
    """Every buffer of ``pool``, K of all layers first; a layer is counted among those that have KV."""
    if _is_part(pool):
        pool = pool.full_kv_pool
    places, dtype = getattr(pool, "layers_mapping", None), getattr(pool, "dtype", None)
    if hasattr(pool, "kv_buffer"):  # latent KV: a token's row is its key, and the first columns are its value
        return [KVBuffer("K", layer, tensor, None, dtype) for layer, tensor in enumerate(pool.kv_buffer)]
    if places is None:
        return [
            KVBuffer(half, layer, tensor, None, dtype)
            for half, buffers in (("K", pool.k_buffer), ("V", pool.v_buffer))
            for layer, tensor in enumerate(buffers)
        ]
    return [
        KVBuffer(half, layer, getattr(part, name)[index], pool.full_to_swa_index_mapping if has_window else None, dtype)
        for half, name in (("K", "k_buffer"), ("V", "v_buffer"))
        for layer, (index, has_window) in sorted(places.items())
        for part in (pool.swa_kv_pool if has_window else pool.full_kv_pool,)
    ]


def kv_places(pool: Any) -> tuple[tuple[Any, torch.Tensor | None], ...]:
    """The pools that hold buffers of KV, each with its mapping: ``pool`` itself, the one within it, or its two halves."""
    if hasattr(pool, "k_buffer") or hasattr(pool, "kv_buffer"):
        return ((pool, None),)
    if _is_part(pool):
        return ((pool.full_kv_pool, None),)
    return (pool.full_kv_pool, None), (pool.swa_kv_pool, pool.full_to_swa_index_mapping)


def _is_part(pool: Any) -> bool:
    """Whether all KV of ``pool`` is in a pool within it: that of a model which has linear layers, too."""
    return hasattr(pool, "full_kv_pool") and not hasattr(pool, "swa_kv_pool")


def buffer_names(pool: Any) -> tuple[str, ...]:
    """The attributes under which a pool of one kind of layer keeps its buffers."""
    return ("kv_buffer",) if hasattr(pool, "kv_buffer") else ("k_buffer", "v_buffer")
