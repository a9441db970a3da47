"""Which buffer holds a layer's K and V, and in which row a slot's token lies."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from stubs.kv_memory import buffer_names, kv_memory, kv_places

PLAIN = SimpleNamespace(k_buffer=[torch.zeros(3), torch.ones(3)], v_buffer=[torch.zeros(3), torch.ones(3)])
LATENT = SimpleNamespace(kv_buffer=[torch.zeros(7), torch.ones(7)])
LINEAR = SimpleNamespace(full_kv_pool=PLAIN)
HYBRID = SimpleNamespace(
    full_kv_pool=SimpleNamespace(k_buffer=[torch.zeros(5)], v_buffer=[torch.ones(5)]),
    swa_kv_pool=SimpleNamespace(k_buffer=[torch.zeros(3)], v_buffer=[torch.ones(3)]),
    layers_mapping={1: (0, True), 0: (0, False)},
    full_to_swa_index_mapping=torch.tensor([0, 0, 2, 1, 0, -1]),
)


def test_buffers_of_one_pool_come_layer_by_layer() -> None:
    assert [buffer.name for buffer in kv_memory(PLAIN)] == [
        "K of layer 0",
        "K of layer 1",
        "V of layer 0",
        "V of layer 1",
    ]
    assert kv_memory(PLAIN)[0].rows([2, 1]) == [2, 1]


def test_layers_of_two_pools_come_in_the_models_order() -> None:
    buffers = kv_memory(HYBRID)
    assert [(buffer.name, len(buffer.tensor)) for buffer in buffers] == [
        ("K of layer 0", 5),
        ("K of layer 1", 3),
        ("V of layer 0", 5),
        ("V of layer 1", 3),
    ]


def test_a_window_layer_has_rows_of_its_own_and_none_for_what_was_given_up() -> None:
    full, window = kv_memory(HYBRID)[:2]
    assert full.rows([1, 2, 3]) == [1, 2, 3]
    assert window.rows([1, 2, 3]) == [2, 1]
    assert window.rows_at(torch.tensor([1, 2, 3])).tolist() == [0, 2, 1]


def test_places() -> None:
    assert [mapping for _, mapping in kv_places(PLAIN)] == [None]
    assert [mapping is None for _, mapping in kv_places(HYBRID)] == [True, False]


def test_latent_kv_is_one_buffer_a_layer_that_slots_number() -> None:
    assert [(buffer.name, len(buffer.tensor)) for buffer in kv_memory(LATENT)] == [
        ("K of layer 0", 7),
        ("K of layer 1", 7),
    ]
    assert kv_memory(LATENT)[1].rows([2, 1]) == [2, 1]
    assert kv_places(LATENT) == ((LATENT, None),)


def test_names_of_the_buffers() -> None:
    assert buffer_names(LATENT) == ("kv_buffer",)
    assert buffer_names(PLAIN) == ("k_buffer", "v_buffer")


def test_a_model_with_linear_layers_has_its_kv_in_a_pool_within() -> None:
    assert [
        (buffer.name, buffer.tensor is held) for buffer, held in zip(kv_memory(LINEAR), PLAIN.k_buffer, strict=False)
    ] == [
        ("K of layer 0", True),
        ("K of layer 1", True),
    ]
    assert kv_places(LINEAR) == ((PLAIN, None),)
