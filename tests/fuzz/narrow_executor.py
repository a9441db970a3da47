"""Runs programs as ``fuzz.execute`` does, with a fault planted in what SGLang does for latent KV in fp8: the seed says which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

from fuzz import execute as plain
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import sglang

prepare, available_pairs, speculative_modes = plain.prepare, plain.available_pairs, plain.speculative_modes


def execute(program: Program) -> Trace:
    plant = list(PLANTS.values())[program.seed]
    if plant is None:
        return plain.execute(program)
    module_name, owner_name, name, make = plant
    module: Any = sglang.load(f"{sglang.ATTENTION}.{module_name}")
    owner = getattr(module, owner_name) if owner_name else module
    with patch.object(owner, name, make(getattr(owner, name))):
        return plain.execute(program)


def _reads_unscaled(honest: Callable[..., Any]) -> Callable[..., Any]:
    """A decode that stores by the layer's scale, and reads as if there were none."""

    def forward_decode(self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, **named: Any) -> Any:
        with patch.object(layer, "v_scale", None):
            return honest(self, q, k, v, layer, forward_batch, **named)

    return forward_decode


def _stores_unscaled(honest: Callable[..., Any]) -> Callable[..., Any]:
    """A decode that reads by the layer's scale, and stores as if there were none."""

    def forward_decode(self: Any, q: Any, k: Any, v: Any, layer: Any, forward_batch: Any, **named: Any) -> Any:
        return honest(self, q, k * layer.k_scale, v, layer, forward_batch, **named)

    return forward_decode


def _turns_by_the_next_position(honest: Callable[..., Any]) -> Callable[..., Any]:
    def quantised(*given: Any) -> Any:
        *parts, positions, cache, is_neox, latent, rotary = given
        return honest(*parts, positions + 1, cache, is_neox, latent, rotary)

    return quantised


def _leaves_keys_as_they_are(honest: Callable[..., Any]) -> Callable[..., Any]:
    def quantised(q: Any, k: Any, v: Any, layer: Any) -> Any:
        return honest(q, k, v, layer)[0], k, *honest(q, k, v, layer)[2:]

    return quantised


def _asks_in_16_bits(honest: Callable[..., Any]) -> Callable[..., Any]:
    def decode(**named: Any) -> Any:
        return honest(**named | {"q": named["q"].bfloat16(), "descale_q": None, "descale_k": None})

    return decode


# What is planted -> (module, class or "", name in it, what that becomes); its index is the seed of the program to run with it.
PLANTS: dict[str, tuple[str, str, str, Callable[[Any], Any]] | None] = {
    "nothing": None,
    "read unscaled": ("triton_backend", "TritonAttnBackend", "forward_decode", _reads_unscaled),
    "stored unscaled": ("triton_backend", "TritonAttnBackend", "forward_decode", _stores_unscaled),
    "next position": ("trtllm_mla_backend", "", "mla_quantize_and_rope_for_fp8", _turns_by_the_next_position),
    "keys not quantised": ("trtllm_mla_backend", "", "_quantize_fp8_qkv", _leaves_keys_as_they_are),
    "queries in 16 bits": ("flashmla_backend", "", "flash_mla_with_kvcache", _asks_in_16_bits),
}
