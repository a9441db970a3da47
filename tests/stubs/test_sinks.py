"""Sinks: whose they are, and how a layer is called with them."""

from __future__ import annotations

from typing import Any

import torch

from stubs.sinks import sinks_of, with_sinks
from stubs.world import World

WORLD = World(num_heads=4, num_layers=2, sinks=1)


def test_each_layer_has_its_own_and_always_the_same() -> None:
    one, other, again = (sinks_of(WORLD, layer) for layer in (0, 1, 0))
    assert one.shape == (4,)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_trtllm_mha_gets_float32_and_others_bfloat16() -> None:
    assert sinks_of(WORLD, 0).dtype == torch.bfloat16
    assert sinks_of(World(prefill="trtllm_mha", sinks=1), 0).dtype == torch.float32


def test_the_model_hands_its_sinks_to_the_layer() -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    (attention,) = with_sinks(WORLD, [lambda *given, **named: calls.append((given, named))])
    attention(1, 2, save_kv_cache=False)
    ((given, named),) = calls
    assert given == (1, 2)
    assert named["save_kv_cache"] is False
    assert torch.equal(named["sinks"], sinks_of(WORLD, 0))
