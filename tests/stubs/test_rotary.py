"""Rotary positions that a backend applies: turned back and forth nothing is lost, and a wrong position shows."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.fp8_quantise import mla_rope_quantize_fp8
from stubs.rotary import Rotary, rotary_of
from stubs.world import World

WORLD = World(head_dim=12, kv_lora_rank=8, dtype="bfloat16", kv_dtype="fp8_e4m3", context_len=16)
POSITIONS = torch.tensor([0, 1, 2, 3, 4])


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).bfloat16()


@pytest.fixture
def rotary() -> Rotary:
    found = rotary_of(WORLD)
    assert found is not None
    return found


def test_it_is_there_where_latent_kv_is_in_fp8() -> None:
    assert rotary_of(World(head_dim=12, kv_lora_rank=8)) is None
    assert rotary_of(World(kv_dtype="fp8_e4m3")) is None


def test_there_are_as_many_positions_as_a_request_may_have_and_its_columns(rotary: Rotary) -> None:
    drafts = World(
        head_dim=12, kv_lora_rank=8, kv_dtype="fp8_e4m3", context_len=16, page_size=4,
        spec_algorithm="EAGLE", spec_steps=2, spec_topk=1, spec_draft_tokens=3,
    )  # fmt: skip
    found = rotary_of(drafts)
    assert found is not None
    assert tuple(rotary.cos_sin_cache.shape) == (17, 4)
    assert len(found.cos_sin_cache) >= 16 + 2 * drafts.spec_reserve
    assert rotary.cos_sin_cache.dtype == torch.float32


def test_a_position_turns_by_a_quarter(rotary: Rotary) -> None:
    values = torch.tensor([1.0, 2, 3, 4]).expand(5, 1, 4)
    turned, _ = rotary(POSITIONS, values, values)
    assert turned[:, 0].tolist() == [[1, 2, 3, 4], [-2, 1, -4, 3], [-1, -2, -3, -4], [2, -1, 4, -3], [1, 2, 3, 4]]


def test_what_is_turned_back_and_then_turned_is_as_it_was(rotary: Rotary) -> None:
    q, k = drawn(5, 3, 4), drawn(5, 1, 4)
    again = rotary(POSITIONS, rotary.back(POSITIONS, q), rotary.back(POSITIONS, k))
    assert torch.equal(again[0], q)
    assert torch.equal(again[1], k)


@pytest.mark.parametrize(("off", "same"), [(0, True), (1, False), (2, False), (3, False)])
def test_the_kernel_turns_as_the_model_does_by_the_right_positions_alone(rotary: Rotary, off: int, same: bool) -> None:
    q, k, nope = drawn(5, 3, 4), drawn(5, 4), drawn(5, 3, 8)
    parts = rotary.back(POSITIONS, q), rotary.back(POSITIONS, k[:, None])[:, 0], nope, nope[:, 0]
    found, _, _, _ = mla_rope_quantize_fp8(*parts, rotary.cos_sin_cache, POSITIONS + off, rotary.is_neox_style)
    assert torch.equal(found.float(), q.to(torch.float8_e4m3fn).float()) is same
