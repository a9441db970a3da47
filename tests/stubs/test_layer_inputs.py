"""Layer inputs: what they are drawn from, and how far off 0 their logits lie."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stubs.layer_inputs import draw_inputs
from stubs.world import World

WORLD = World(num_heads=2, num_kv_heads=1, head_dim=16)


def logits(world: World) -> torch.Tensor:
    """[heads, 40 queries of step 3, 40 keys of step 5]"""
    q = draw_inputs(world, 7, 3, 0, 40)[0].view(40, world.num_heads, world.head_dim)
    k = draw_inputs(world, 7, 5, 0, 40)[1]
    return torch.einsum("qhd,kd->hqk", q, k) * (world.query_scalar or world.head_dim) ** -0.5


def test_seed_step_and_layer_say_all() -> None:
    first = draw_inputs(WORLD, 7, 3, 1, 5)
    assert [tuple(tensor.shape) for tensor in first] == [(5, 32), (5, 16), (5, 16)]
    assert all(torch.equal(one, other) for one, other in zip(first, draw_inputs(WORLD, 7, 3, 1, 5), strict=True))
    for seed, step, layer in ((8, 3, 1), (7, 4, 1), (7, 3, 0)):
        assert not torch.equal(first[0], draw_inputs(WORLD, seed, step, layer, 5)[0])


def test_logits_lie_around_0() -> None:
    drawn = logits(WORLD)
    assert abs(float(drawn.mean())) < 1
    assert 3 < float(drawn.std()) < 5


@pytest.mark.parametrize("world", [World(head_dim=16), World(head_dim=32), World(head_dim=16, query_scalar=64)])
@pytest.mark.parametrize("shift", [-200, 200])
def test_every_logit_is_shifted_past_where_exp_is_0_or_infinite(world: World, shift: int) -> None:
    values = {name: getattr(world, name) for name in ("head_dim", "query_scalar")}
    drawn = logits(World(logit_shift=shift, **values))
    assert abs(float(drawn.mean()) - shift) < 30
    beyond = drawn < -88 if shift < 0 else drawn > 88
    assert float(beyond.float().mean()) > 0.99


def test_narrow_dtypes_are_drawn_narrow() -> None:
    q, k, _ = draw_inputs(World(dtype="bfloat16"), 7, 3, 0, 200)
    assert (q.dtype, k.dtype) == (torch.bfloat16, torch.bfloat16)
    assert 0.9 < float(q.float().std()) < 1.1


def test_latent_values_are_the_first_columns_of_the_row() -> None:
    q, k, v = draw_inputs(World(num_heads=2, head_dim=12, kv_lora_rank=8), 7, 3, 0, 5)
    assert [tuple(tensor.shape) for tensor in (q, k, v)] == [(5, 24), (5, 12), (5, 8)]
    assert torch.equal(v, k[:, :8])
