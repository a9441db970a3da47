"""How far from the truth an output may be, by dtype, by pool, and by how far apart its logits are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fuzz.oracle.tolerance import tolerance_of
from stubs.world import World
from tests.fuzz.oracle.planted_output import CAUSAL, Case, in_fp8, mask, signatures


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "fp8_e5m2"])
def test_own_kv_that_is_not_rounded_as_the_pool_rounds_it_is_no_fault(dtype: str) -> None:
    case = Case(0, 8, dtype="bfloat16", kv_dtype=dtype)  # so many keys that a rounding of them shows
    assert case.judge(case.output(torch.ones(8, 8).tril().bool())) == []


def test_a_wrong_rule_is_named_over_own_kv_that_is_not_rounded() -> None:
    case = Case(3, 2, dtype="bfloat16", kv_dtype="fp8_e4m3")
    case.k *= 2
    assert signatures(case.judge(case.output(mask("00010 00011")))) == ["numeric/prefix_ignored/Leaf.forward_extend"]


def test_own_kv_is_rounded_nowhere_but_in_a_pool_of_fp8() -> None:
    case = Case(3, 2, dtype="bfloat16")
    out = case.output(mask(CAUSAL))
    case.k, case.v = in_fp8(case.k), in_fp8(case.v)
    assert signatures(case.judge(out)) == ["numeric/wrong_output/Leaf.forward_extend"]


@pytest.mark.parametrize(("query_scalar", "beyond"), [(0, 0.16), (32, 0.16), (2, 0.31)])
def test_a_rounding_to_fp8_goes_farther_where_logits_are_farther_apart(query_scalar: int, beyond: float) -> None:
    """Scaled by 2 ** -0.5 instead of 8 ** -0.5 they are twice as far apart; none are nearer than that."""
    case = Case(3, 2, dtype="bfloat16", kv_dtype="fp8_e4m3", query_scalar=query_scalar)
    case.k, case.v = in_fp8(case.k), in_fp8(case.v)
    right = case.output(mask(CAUSAL)).float()
    assert case.judge(right + (beyond - 0.02) * (1 + right.abs())) == []
    assert case.judge(right + beyond * (1 + right.abs())) != []


@pytest.mark.parametrize(("query_scalar", "beyond"), [(0, 1.1e-5), (32, 1.1e-5), (2, 2.1e-5)])
def test_a_rounding_in_float32_goes_farther_where_logits_are_farther_apart(query_scalar: int, beyond: float) -> None:
    case = Case(3, 2, query_scalar=query_scalar)
    right = case.output(mask(CAUSAL)).double()
    assert case.judge(right + (beyond - 0.2e-5) * (1 + right.abs())) == []
    assert case.judge(right + beyond * (1 + right.abs())) != []


@pytest.mark.parametrize("query_scalar", [0, 2])
def test_logits_farther_apart_cost_no_precision_in_16_bits(query_scalar: int) -> None:
    case = Case(3, 2, dtype="float16", query_scalar=query_scalar)
    right = case.output(mask(CAUSAL)).double()
    assert case.judge(right + 2.5e-3 * (1 + right.abs())) != []


def test_logits_far_from_0_cost_precision() -> None:
    right = Case(3, 2).output(mask(CAUSAL))
    assert Case(3, 2, logit_shift=-200).judge(right + 3e-4) == []
    assert Case(3, 2).judge(right + 3e-4) != []
    assert Case(3, 2, logit_shift=-200).judge(right + 3e-3) != []


def test_evidence_says_how_many_times_the_tolerance() -> None:
    case = Case(3, 2)
    out = case.output(mask(CAUSAL))
    off, nan = out.clone(), out.clone()
    off[2, 0] += 3e-5 * (1 + abs(float(out[2, 0])))
    nan[2, 0] = float("nan")
    assert [case.judge(one)[0].evidence["times_tolerance"] for one in (off, nan)] == ["3", "inf"]


@pytest.mark.parametrize(
    ("head_dim", "error", "kinds"), [(8, 15e-6, ["wrong_output"]), (256, 15e-6, []), (256, 1e-4, ["wrong_output"])]
)
def test_wide_rows_round_more(head_dim: int, error: float, kinds: list[str]) -> None:
    case = Case(3, 2, head_dim=head_dim)
    out = case.output(mask(CAUSAL))
    out[2] += error * (1 + out[2].abs())
    assert [fault.signature.kind for fault in case.judge(out)] == kinds


@pytest.mark.parametrize(
    ("dtype", "error", "kinds"),
    [
        ("float32", 5e-6, []),
        ("float32", 1e-4, ["wrong_output"]),
        ("float16", 1e-3, []),
        ("float16", 2e-2, ["wrong_output"]),
        ("bfloat16", 2e-3, []),
        ("bfloat16", 1e-1, ["wrong_output"]),
    ],
)
def test_tolerance_is_the_dtypes_own(dtype: str, error: float, kinds: list[str]) -> None:
    case = Case(3, 2, dtype=dtype)
    out = case.output(mask(CAUSAL))
    out[2, :4] += error
    assert [fault.signature.kind for fault in case.judge(out)] == kinds


@pytest.mark.parametrize(("kv_dtype", "tolerance"), [("auto", 0.03), ("fp8_e4m3", 0.15), ("fp8_e5m2", 0.3)])
def test_a_wide_row_costs_precision_but_in_a_pool_of_fp8(kv_dtype: str, tolerance: float) -> None:
    world = World(head_dim=576, kv_lora_rank=512, dtype="bfloat16", kv_dtype=kv_dtype)
    assert tolerance_of(SimpleNamespace(world=world)) == pytest.approx(tolerance)  # type: ignore[arg-type]
