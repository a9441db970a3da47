"""What makes fp8 of queries and latent rows: right numbers, and a refusal for each line of the contract."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import StandInGap
from stubs.kernels.fp8_quantise import mla_rope_quantize_fp8, per_tensor_quant_fp8
from tests.stubs.breach import refused
from tests.stubs.flashinfer_calls import drawn

STATIC, ROPE = "per_tensor_quant_fp8", "mla_rope_quantize_fp8"
E4M3 = torch.float8_e4m3fn


def by_scale(**changes: Any) -> dict[str, Any]:
    given = {"input": torch.tensor([[1.0, 0.4961], [-3.0, 1000.0]]), "output_q": torch.empty(2, 2, dtype=E4M3)}
    return {**given, "output_s": torch.tensor(0.5), "is_static": True} | changes


def test_values_are_divided_by_the_scale_rounded_and_kept_finite() -> None:
    call = by_scale()
    per_tensor_quant_fp8(**call)
    assert call["output_q"].float().tolist() == [[2.0, 1.0], [-6.0, 448.0]]


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("input", {"input": drawn(2, 2).T}),
        ("output_q", {"output_q": torch.empty(2, 2, dtype=E4M3).T}),
        ("output_q", {"output_q": torch.empty(4, dtype=E4M3)}),
        ("output_q", {"output_q": torch.empty(2, 2, dtype=torch.float8_e5m2)}),
        ("output_s", {"output_s": torch.ones(2)}),
        ("output_s", {"output_s": torch.ones(1, dtype=torch.bfloat16)}),
    ],
)
def test_what_is_no_division_by_one_scale_is_refused(argument: str, changes: dict[str, Any]) -> None:
    with refused(STATIC, argument):
        per_tensor_quant_fp8(**by_scale(**changes))


def test_a_scale_of_the_kernels_own_is_not_there() -> None:
    with pytest.raises(StandInGap, match="is_static"):
        per_tensor_quant_fp8(**by_scale(is_static=False))


# Positions 0 and 1 of two pairs of columns: the first pair is turned by a quarter, the second by a half.
CACHE = torch.tensor([[1.0, 1, 0, 0], [0.0, -1, 1, 0]])


def by_position(**changes: Any) -> dict[str, Any]:
    """Two tokens, the first at position 1; 3 heads of 8 columns beside 4 that are turned."""
    q = {"q_rope": torch.arange(24.0).view(2, 3, 4), "q_nope": drawn(2, 3, 8, seed=1)}
    k = {"k_rope": torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]]), "k_nope": drawn(2, 8, seed=2)}
    return {**q, **k, "cos_sin_cache": CACHE, "pos_ids": torch.tensor([1, 0]), "is_neox": False} | changes


def turned(**changes: Any) -> list[Any]:
    return [part.float() for part in mla_rope_quantize_fp8(**by_position(**changes))]


def test_neighbours_are_turned_by_their_tokens_position() -> None:
    q, k, _, _ = turned()
    assert k.tolist() == [[-2, 1, -3, -4], [5, 6, 7, 8]]
    assert q[0, 1].tolist() == [-5, 4, -6, -7]
    assert q[1, 0].tolist() == [12, 13, 14, 15]


def test_of_neox_columns_half_the_width_apart_are_turned() -> None:
    assert turned(is_neox=True)[1].tolist() == [[-3, -2, 1, -4], [5, 6, 7, 8]]


def test_the_other_columns_are_rounded_alone() -> None:
    call = by_position()
    _, _, q, k = mla_rope_quantize_fp8(**call)
    assert torch.equal(q.float(), call["q_nope"].to(E4M3).float())
    assert torch.equal(k.float(), call["k_nope"].to(E4M3).float())


def test_queries_and_keys_have_a_scale_each() -> None:
    q, k, _, _ = turned(quant_scale_q=2.0, quant_scale_kv=0.5)
    assert k.tolist() == [[-1, 0.5, -1.5, -2], [2.5, 3, 3.5, 4]]
    assert q[1, 0].tolist() == [24, 26, 28, 30]


def test_answers_go_where_they_are_to_go() -> None:
    joined = torch.zeros(2, 3, 12, dtype=E4M3)
    mla_rope_quantize_fp8(**by_position(q_rope_out=joined[..., 8:], q_nope_out=joined[..., :8]))
    q, _, nope, _ = mla_rope_quantize_fp8(**by_position())
    assert torch.equal(joined.float(), torch.cat([nope, q], -1).float())


def test_keys_may_have_a_head_for_each_of_the_queries() -> None:
    heads = {"k_rope": by_position()["k_rope"][:, None].expand(2, 3, 4), "k_nope": drawn(2, 3, 8)}
    assert turned(**heads)[1][0].tolist() == [[-2, 1, -3, -4]] * 3


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("cos_sin_cache", {"cos_sin_cache": CACHE.bfloat16()}),
        ("cos_sin_cache", {"cos_sin_cache": CACHE[:, :2]}),
        ("pos_ids", {"pos_ids": torch.tensor([1.0, 0.0])}),
        ("pos_ids", {"pos_ids": torch.tensor([1])}),
        ("pos_ids", {"pos_ids": torch.tensor([1, 2])}),
        ("pos_ids", {"pos_ids": torch.tensor([-1, 0])}),
        ("q_nope", {"q_nope": drawn(2, 2, 8)}),
        ("q_nope", {"q_nope": drawn(2, 3, 8).bfloat16()}),
        ("q_nope", {"q_nope": drawn(2, 8, 3).transpose(1, 2)}),
        ("k_nope", {"k_nope": drawn(3, 8)}),
        ("k_rope", {"k_rope": drawn(2, 4).bfloat16()}),
        ("q_rope", {name: by_position()[name].to(E4M3) for name in ("q_rope", "k_rope", "q_nope", "k_nope")}),
        ("q_rope_out", {"q_rope_out": torch.empty(2, 3, 8, dtype=E4M3)}),
        ("k_nope_out", {"k_nope_out": torch.empty(2, 8)}),
        ("k_nope_out", {"k_nope_out": torch.empty(8, 2, dtype=E4M3).T}),
        ("k_rope_out", {"k_rope_out": torch.empty(2, 4, dtype=E4M3), "quantize_dtype": torch.float8_e5m2}),
    ],
)
def test_parts_that_do_not_fit_are_refused(argument: str, changes: dict[str, Any]) -> None:
    with refused(ROPE, argument):
        mla_rope_quantize_fp8(**by_position(**changes))
