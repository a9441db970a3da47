"""Worlds of models with latent attention, and the backends that serve no other kind of model."""

from __future__ import annotations

from dataclasses import replace

from stubs.page_sizes import smallest_page
from stubs.world import World
from stubs.world_rules import NOT_LATENT

# SGLang's registry: "... backend can only be used with MLA models." flashinfer has a backend of its own for them, under
# the one name.
LATENT_ONLY = ("trtllm_mla", "flashmla", "cutlass_mla", "cutedsl_mla")
# Whose extend is not to be had but as their model calls it: what they plan for a prompt is no absorbed attention.
UNABSORBED = ("flashinfer", *LATENT_ONLY)
# Serves decode alone ("only supports decoding for now"), beside this one for prefill.
PREFILL_OF = {"cutedsl_mla": "trtllm_mla"}
# Latent and row of DeepSeek's models, and the smaller ones that Triton's decode is written for besides.
LATENT, ROW = 256, 288
LARGE_LATENT, LARGE_ROW = 512, 576
HEADS = 4


def needs_latent(world: World) -> bool:
    """Whether a half of the pair serves nothing but latent attention."""
    return world.prefill in LATENT_ONLY or world.decode in LATENT_ONLY


def with_latent(world: World, latent: int = LATENT, row: int = ROW, num_heads: int = HEADS) -> World:
    """``world`` with latent attention, as DeepSeek's: every head reads the same row. What goes with none is left out."""
    plain = World()
    pinned = {name: getattr(plain, name) for name in NOT_LATENT}
    return replace(world, **pinned, num_heads=num_heads, num_kv_heads=1, head_dim=row, kv_lora_rank=latent)


def alone(name: str) -> tuple[str, str]:
    """The pair that shows what one backend can do by itself: prefill and decode by it, where it serves both."""
    return PREFILL_OF.get(name, name), name


def smallest_world(prefill: str, decode: str, device: str) -> World:
    """The plainest world that the pair may start with, on the smallest pages."""
    world = World(prefill=prefill, decode=decode, device=device, page_size=smallest_page(prefill, decode))
    return with_latent(world) if needs_latent(world) else world
