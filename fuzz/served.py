"""What SGLang serves with some backends only, in every supported release: drawn seldom with the others.

A program that is refused costs little, but takes the turn of one that runs: drawn alike everywhere, nine in ten worlds
with a window pool or with sinks never started. Seldom, not never: a release that begins to serve one is to be noticed.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuzz.choice import Choices
from stubs.world import World

# By the rows of README's "Supported releases"; window pools are of the model that has sinks.
SERVED: Mapping[str, tuple[str, ...]] = {
    "window_tokens": ("triton", "fa3", "trtllm_mha"),
    "sinks": ("triton", "fa3", "trtllm_mha"),
    "deterministic": ("triton", "fa3", "flashinfer"),
    "encoder_decoder": ("torch_native", "fa3", "flashinfer"),
    "tree": ("triton", "fa3", "flashinfer"),
    # SGLang's checks of the others' arguments name e4m3 alone. FlashMLA's kernel takes no other, which no check says.
    "latent_e5m2": ("triton", "torch_native", "flex_attention", "fa3", "flashinfer", "flashmla", "cutlass_mla"),
}
SELDOM = 60  # one world in so many: a campaign of an hour still tries each a hundred times


def serves(world: World, feature: str) -> bool:
    """Whether both halves of ``world`` are known to serve ``feature``; of trees, the half that verifies."""
    able = SERVED[feature]
    if feature == "tree":
        return (world.prefill if world.spec_mode == "prefill" else world.decode) in able
    return world.prefill in able and world.decode in able


def draws(choices: Choices, world: World, feature: str, every: int) -> bool:
    """Whether ``world`` gets ``feature``: one in ``every`` that serve it, one in SELDOM of the others."""
    return choices.chance(1, every if serves(world, feature) else SELDOM)
