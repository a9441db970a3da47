"""How far an output may be off the truth, and how far it is."""

from __future__ import annotations

import math

import torch

from fuzz.oracle.rule import Rule
from fuzz.oracle.view import StepView
from stubs.layer import layer_of
from stubs.reference import CUDA_TOLERANCES, TOLERANCES
from stubs.sglang import kv_torch_dtype
from stubs.world import World

# What a logit far from 0 costs in precision: a few roundings of float32 (2 ** -24), of each of 16 or 32 products.
SHIFT_BLUR = 2.0**-19
PLAIN_WIDTH = 64  # columns of the widest rows that the tolerances were found for
# How much of its tolerance a right output takes up, over 2,400 steps of 0.5.23: in float32 a quarter, in 16 bits three
# fifths, where wide rows take up no more than others; fp8 all of it. What is wrong by little is near to much by chance:
# a rule that leaves more must be nearer than the truth by far.
ROUNDING_SHARES = {"float32": 0.25, "float16": 0.6, "bfloat16": 0.6}


def tolerance_of(view: StepView) -> float:
    """How far an output may be off the truth, absolutely and relatively."""
    table = CUDA_TOLERANCES if view.world.device == "cuda" else TOLERANCES
    world, rounding = view.world, table[kv_torch_dtype(view.world)]
    return rounding * _width(world) * _spread(world) + SHIFT_BLUR * abs(world.logit_shift)


def times_tolerance(got: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> float:
    """How many times the tolerance the worst element is off; inf where it alone is NaN."""
    times = (got - wanted).abs() / (tolerance * (1 + wanted.abs()))
    times = torch.where(torch.isnan(got), math.inf, times).masked_fill(torch.isnan(wanted), 0.0)
    return float(times.max())


def beyond(got: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> torch.Tensor:
    """How far each element lies beyond the tolerance; at most 0 where it is within."""
    return (got - wanted).abs() - tolerance * (1 + wanted.abs())


def rounding_share(world: World) -> float:
    """How much of the tolerance a right output takes up; all of it where that was not measured."""
    if world.kv_dtype != "auto" or world.device == "cuda":
        return 1.0
    return ROUNDING_SHARES[world.dtype] / (1.0 if world.dtype == "float32" else _width(world))


def heat(world: World, rule: Rule) -> float:
    """How many times as far apart logits are under ``rule`` as they ought to be, and with them what is rounded."""
    scale = world.kv_scales[0]
    return max(1.0, {"": 1.0, "unscaled": 1 / scale}.get(rule.pool, scale))


def _width(world: World) -> float:
    """How many times as far the roundings of a product of rows go as over rows of PLAIN_WIDTH: they add up as a walk does.

    To fp8 queries and keys themselves are rounded, before they are scaled by their width: a logit is off by as much over
    rows of any. Measured over latent rows of 288 and 576 columns: by 0.083 at the most where a step is right.
    """
    return 1.0 if world.kv_dtype != "auto" else max(1.0, math.sqrt(world.head_dim / PLAIN_WIDTH))


def _spread(world: World) -> float:
    """How many times as far in logits a rounding goes as where they are scaled by the width of keys.

    To fp8: some backends round queries so as well, those of Triton for the prefix alone. In float32: of a logit itself,
    which is nothing beside what the tolerances of 16 bits allow for.
    """
    if world.kv_dtype == "auto" and world.dtype != "float32":
        return 1.0
    return max(1.0, round(layer_of(world, 0).scaling * math.sqrt(world.head_dim), 6))
