"""How a model calls its layers: with its sinks, with K and V that may be changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stubs import sglang_latent
from stubs.model_attention import as_called, sinks_of
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
    (attention,) = as_called(WORLD, [lambda *given, **named: calls.append((given, named))], is_draft=False)
    attention(1, 2, save_kv_cache=False)
    ((given, named),) = calls
    assert given == (1, 2)
    assert named["save_kv_cache"] is False
    assert torch.equal(named["sinks"], sinks_of(WORLD, 0))


def test_drafts_have_no_sinks() -> None:
    layer = object()
    assert as_called(WORLD, [layer], is_draft=True) == [layer]


def test_k_and_v_are_the_callees_to_change_where_they_are_scaled() -> None:
    k, v = torch.ones(2), torch.ones(2)
    world = World(kv_dtype="fp8_e4m3", kv_scale=4)
    (attention,) = as_called(world, [lambda q, k, v: (k.div_(2), v.div_(2))], is_draft=False)
    attention(None, k, v)
    assert (k.tolist(), v.tolist()) == ([1, 1], [1, 1])


LATENT = World(num_heads=2, head_dim=6, kv_lora_rank=4)


@pytest.mark.parametrize(
    ("takes_parts", "shapes", "names"),
    [
        (False, [(3, 2, 6), (3, 1, 6), (3, 1, 4)], []),
        (True, [(3, 2, 4), (3, 1, 4), (3, 1, 4)], [("q_rope", (3, 2, 2)), ("k_rope", (3, 1, 2))]),
    ],
    ids=["joined", "apart"],
)
def test_latent_and_rotary_parts_go_in_as_the_release_has_them_for_the_backend(
    monkeypatch: pytest.MonkeyPatch, takes_parts: bool, shapes: list[Any], names: list[Any]
) -> None:
    monkeypatch.setattr(sglang_latent, "takes_parts", lambda world, forward_batch: takes_parts)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    (attention,) = as_called(LATENT, [lambda *given, **named: calls.append((given, named))], is_draft=False)
    row = torch.arange(18.0).view(3, 6)
    attention(torch.arange(36.0).view(3, 12), row, row[:, :4], "batch")
    ((given, named),) = calls
    assert [tuple(tensor.shape) for tensor in given[:3]] == shapes
    assert [(name, tuple(tensor.shape)) for name, tensor in named.items()] == names
    assert given[3] == "batch"
    if takes_parts:
        assert named["q_rope"][1].tolist() == [[16, 17], [22, 23]]
        assert named["k_rope"][:, 0].tolist() == [[4, 5], [10, 11], [16, 17]]


FP8 = World(num_heads=2, head_dim=6, kv_lora_rank=4, dtype="bfloat16", kv_dtype="fp8_e4m3")


@pytest.mark.parametrize(
    ("fuses", "k_rope", "names"),
    [
        (True, [[4, 5], [11, -10], [-16, -17]], ["cos_sin_cache", "is_neox", "k_rope", "q_rope"]),
        (False, [[4, 5], [10, 11], [16, 17]], ["k_rope", "q_rope"]),
    ],
)
def test_a_backend_that_rotates_gets_what_is_not_rotated_yet(
    monkeypatch: pytest.MonkeyPatch, fuses: bool, k_rope: list[Any], names: list[str]
) -> None:
    monkeypatch.setattr(sglang_latent, "takes_parts", lambda world, forward_batch: True)
    monkeypatch.setattr(sglang_latent, "fuses_rope", lambda world, rotary, forward_batch: fuses)
    calls: list[dict[str, Any]] = []
    (attention,) = as_called(FP8, [lambda *given, **named: calls.append(named)], is_draft=False)
    row = torch.arange(18.0).view(3, 6)
    attention(torch.arange(36.0).view(3, 12), row, row[:, :4], SimpleNamespace(positions=torch.arange(3)))
    (named,) = calls
    assert sorted(named) == names
    assert named["k_rope"][:, 0].tolist() == k_rope
    assert row[1].tolist() == [6, 7, 8, 9, 10, 11]
    if fuses:
        assert (named["is_neox"], named["cos_sin_cache"][1].tolist()) == (False, [0, 1])
