"""What one attention layer of a world is like: how it scales, bends and limits its logits."""

from __future__ import annotations

from dataclasses import dataclass

from stubs.world import World


@dataclass(frozen=True, slots=True)
class Layer:
    """``window`` in tokens before a query's own (0 = none), ``logit_cap`` in logits (0 = none).

    ``chunk``: of so many positions a query sees its own chunk's alone (0 = all).
    ``temperature_len``: behind so many tokens logits are hotter, as Grok has them (0 = none).
    ``is_cross``: it attends to the encoder's KV of a request, all of it, and to no other.
    """

    scaling: float
    window: int
    logit_cap: int
    temperature_len: int
    chunk: int = 0
    is_cross: bool = False

    @property
    def is_local(self) -> bool:
        """Whether it does not see all keys: then a pool of its own keeps those it does."""
        return bool(self.window or self.chunk)


def layer_of(world: World, index: int, *, on_draft: bool = False) -> Layer:
    """Layer ``index`` of a model of ``world``; a draft model's only layer is like the target's first.

    It has no temperature and no chunks, though: SGLang's models/grok.py and llama4.py alone set them, and the drafts of both
    are Llamas.
    Models that alternate (Gemma 2, gpt-oss) have their window on the even layers. With a pool of its own it is on the odd
    ones here, for drafts of such models have none.
    """
    is_plain = bool(world.alternate_layers) and index % 2 == (0 if world.window_tokens else 1)
    return Layer(
        scaling=(world.query_scalar or world.head_dim) ** -0.5,
        window=0 if is_plain else world.sliding_window,
        logit_cap=0 if is_plain else world.logit_cap,
        temperature_len=0 if on_draft else world.xai_temperature_len,
        chunk=0 if is_plain or on_draft else world.attention_chunk_size,
        is_cross=bool(world.encoder_decoder) and index % 2 == 1,
    )
