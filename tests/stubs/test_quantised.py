"""What is left of K and V that a pool keeps in fp8."""

from __future__ import annotations

import torch

from stubs.kv_memory import KVBuffer
from stubs.quantised import as_stored
from stubs.world import World

VALUES = torch.tensor([0.4961, 1.0, 3.3, -2.9], dtype=torch.bfloat16)


def test_plain_kv_is_what_was_written() -> None:
    assert as_stored(World(), VALUES, "K") is VALUES


def test_fp8_rounds_to_three_or_two_bits() -> None:
    e4m3, e5m2 = (as_stored(World(kv_dtype=name), VALUES, "K").tolist() for name in ("fp8_e4m3", "fp8_e5m2"))
    assert e4m3 == [0.5, 1.0, 3.25, -3.0]
    assert e5m2 == [0.5, 1.0, 3.5, -3.0]


def test_scales_are_powers_of_two_and_change_nothing_within_the_range() -> None:
    world = World(kv_dtype="fp8_e4m3", kv_scale=4)
    assert world.kv_scales == (0.5, 1.0)
    assert as_stored(world, VALUES, "K").tolist() == [0.5, 1.0, 3.25, -3.0]
    assert as_stored(world, torch.tensor([300.0]), "V").tolist() == [288.0]


def test_a_buffer_of_bytes_holds_the_quotient() -> None:
    buffer = KVBuffer("K", 0, torch.zeros(4, dtype=torch.uint8), None, torch.float8_e4m3fn)
    assert buffer.encode(torch.tensor([1.0, 2.0]), 0.5).view(torch.float8_e4m3fn).float().tolist() == [2.0, 4.0]
    buffer.poison(torch.tensor([1, 2]))
    assert buffer.tensor.view(torch.float8_e4m3fn).float().tolist() == [0, 240, 240, 0]


def test_a_latent_row_has_one_scale_as_key_and_as_value() -> None:
    plain = {"kv_dtype": "fp8_e4m3", "kv_scale": 16}
    assert World(**plain).kv_scales == (2.0, 4.0)
    assert World(**plain, head_dim=12, kv_lora_rank=8).kv_scales == (2.0, 2.0)
