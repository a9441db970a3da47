"""The numeric oracle on planted outputs: what is right, what is wrong, and which wrong rule explains it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzz.oracle.numeric import matches_reference
from fuzz.oracle.view import Fault, StepView
from stubs.layer import layer_of
from stubs.live import History
from stubs.model_attention import sinks_of
from stubs.plan import RowPlan
from stubs.reference import attend
from stubs.tap import Tap
from stubs.world import World

HEADS, KV_HEADS, DIM = 2, 1, 8

Explain = Callable[..., list[Fault]]


class Leaf:
    """A backend by name alone."""


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Case:
    """One request with ``prefix`` committed tokens and ``count`` new ones; another request's rows come first in q."""

    def __init__(self, prefix: int, count: int, *, tree: torch.Tensor | None = None, **world: Any) -> None:
        self.world = World(num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, **world)
        dtype = getattr(torch, self.world.dtype)
        self.prefix, self.count, self.before = prefix, count, 2
        self.scale = layer_of(self.world, 0).scaling
        tokens = self.before + count
        widths = (HEADS, KV_HEADS, KV_HEADS)
        self.q, self.k, self.v = (
            (2 * draw(tokens, n * DIM, seed=seed)).to(dtype) for seed, n in zip((1, 2, 3), widths, strict=True)
        )
        history = [History(*((2 * draw(n, KV_HEADS, DIM, seed=seed)).to(dtype) for seed in (s, s + 1)))
                   for n, s in ((0, 4), (prefix, 6))]  # fmt: skip
        other, live = (SimpleNamespace(request_id=i, target=[history[i]], draft=[]) for i in range(2))
        self.rows = (RowPlan(other, 0, self.before, 0), RowPlan(live, self.before, count, prefix, tree))  # type: ignore[arg-type]
        self.history = history[1]
        self.pool: Any = None

    def output(self, mask: torch.Tensor, logit_cap: float = 0.0, sinks: torch.Tensor | None = None) -> torch.Tensor:
        """[tokens, heads * dim]: the other request right, ours under ``mask`` [count, prefix + count]."""
        parts = []
        for row, seen in zip(self.rows, (torch.ones(2, 2).tril().bool(), mask), strict=True):
            rows = slice(row.start, row.start + row.count)
            history = row.live.target[0]
            k, v = (t[rows].view(row.count, KV_HEADS, DIM) for t in (self.k, self.v))
            q = self.q[rows].view(row.count, HEADS, DIM)
            keys, values = torch.cat([history.k, k]), torch.cat([history.v, v])
            parts.append(attend(q, keys, values, scale=self.scale, mask=seen, logit_cap=logit_cap, sinks=sinks))
        return torch.cat(parts).to(self.q.dtype).flatten(1)

    def judge(self, out: torch.Tensor) -> list[Fault]:
        mode = SimpleNamespace(is_decode=lambda: self.count == 1)
        plan = SimpleNamespace(
            mode="decode", on_draft=False, rows=self.rows, tokens=self.before + self.count,
            forward_batch=SimpleNamespace(forward_mode=mode), graph=None,
            runner=SimpleNamespace(token_to_kv_pool=self.pool),
        )  # fmt: skip
        taps = [Tap(0, self.q, self.k, self.v, out)]
        return matches_reference(StepView(self.world, plan, taps, [], {}, {}, None, Leaf()))  # type: ignore[arg-type]


def in_fp8(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.float8_e4m3fn).to(values.dtype)


def mask(text: str) -> torch.Tensor:
    """Rows of 0 and 1, one for each query, as a mask over the keys."""
    return torch.tensor([[int(c) for c in row] for row in text.split()]).bool()


def signatures(faults: list[Fault]) -> list[str]:
    return [str(fault.signature) for fault in faults]


CAUSAL = "11110 11111"  # two new tokens after three


def test_right_output_is_no_fault() -> None:
    case = Case(3, 2)
    assert case.judge(case.output(mask(CAUSAL))) == []


def test_right_window_and_cap_are_no_fault() -> None:
    case = Case(3, 2, sliding_window=2, logit_cap=3)
    assert case.judge(case.output(mask("01110 00111"), logit_cap=3.0)) == []


def test_right_sinks_are_no_fault() -> None:
    case = Case(3, 2, sinks=1)
    assert case.judge(case.output(mask(CAUSAL), sinks=sinks_of(case.world, 0))) == []


def test_sinks_that_are_forgotten_or_counted_twice() -> None:
    case = Case(3, 2, sinks=1)
    twice = sinks_of(case.world, 0).double() + 0.6931471805599453  # log 2
    for sinks, kind in ((None, "sinks_ignored"), (twice, "sinks_counted_twice")):
        faults = case.judge(case.output(mask(CAUSAL), sinks=sinks))
        assert signatures(faults) == [f"numeric/{kind}/Leaf.forward_extend"]


def test_right_tree_is_no_fault() -> None:
    case = Case(2, 3, tree=mask("100 110 101"))
    assert case.judge(case.output(mask("11100 11110 11101"))) == []


@pytest.mark.parametrize(
    ("world", "seen", "cap", "kind"),
    [
        ({"sliding_window": 2}, "11110 11111", 0.0, "window_ignored"),
        ({"sliding_window": 2}, "00110 00011", 0.0, "window_short_by_one"),
        ({"sliding_window": 2}, "11110 01111", 0.0, "window_long_by_one"),
        ({"logit_cap": 3}, "11110 11111", 0.0, "logit_cap_ignored"),
        ({"logit_cap": 3, "sliding_window": 2}, "11110 11111", 3.0, "window_ignored"),
        ({}, "00010 00011", 0.0, "prefix_ignored"),
        ({}, "11100 11100", 0.0, "own_kv_unseen"),
        ({}, "11010 11011", 0.0, "newest_prefix_key_unseen"),
        ({}, "01110 01111", 0.0, "wrong_output"),
        ({}, "11111 11111", 0.0, "wrong_output"),
        ({"sliding_window": 2}, "00110 00111", 0.0, "wrong_output"),
    ],
)
def test_wrong_output_is_named_by_the_rule_that_explains_it(
    world: dict[str, int], seen: str, cap: float, kind: str
) -> None:
    case = Case(3, 2, **world)
    assert signatures(case.judge(case.output(mask(seen), cap))) == [f"numeric/{kind}/Leaf.forward_extend"]


def test_own_kv_taken_for_prefix_too_is_named() -> None:
    case = Case(3, 2)
    live, truth = case.rows[1].live, case.history
    own = [t[case.before :].view(2, KV_HEADS, DIM) for t in (case.k, case.v)]
    live.target = [History(torch.cat([truth.k, own[0]]), torch.cat([truth.v, own[1]]))]
    out = case.output(mask("1111110 1111111"))
    live.target = [truth]
    assert signatures(case.judge(out)) == ["numeric/own_kv_counted_twice/Leaf.forward_extend"]


def test_a_temperature_that_is_ignored_is_named() -> None:
    case = Case(3, 2, xai_temperature_len=2)
    assert signatures(case.judge(case.output(mask(CAUSAL)))) == ["numeric/temperature_ignored/Leaf.forward_extend"]


@pytest.mark.parametrize(
    ("held", "read", "kind"), [((1, 1), (2, 4), "stored_kv_wrong"), ((2, 4), (1, 1), "kv_scale_ignored")]
)
def test_a_scale_left_out_is_laid_on_whoever_stored_the_prefix_or_on_whoever_reads_it(
    held: tuple[int, int], read: tuple[int, int], kind: str
) -> None:
    """K and V of the prefix lie there divided by ``held`` and are read times ``read``; their scales are 2 and 4."""
    case = Case(3, 2, dtype="bfloat16", kv_dtype="fp8_e4m3", kv_scale=16)
    case.k, case.v = in_fp8(case.k), in_fp8(case.v)
    live, truth = case.rows[1].live, History(in_fp8(case.history.k), in_fp8(case.history.v))
    live.slots, pool = [6, 1, 4, 2, 3], [torch.zeros(8, KV_HEADS, DIM, dtype=torch.uint8) for _ in "KV"]
    for buffer, rows, scale in zip(pool, (truth.k, truth.v), held, strict=True):
        buffer[live.slots[:3]] = (rows / scale).to(torch.float8_e4m3fn).view(torch.uint8)
    case.pool = SimpleNamespace(k_buffer=pool[:1], v_buffer=pool[1:], dtype=torch.float8_e4m3fn)
    live.target = [History(truth.k / held[0] * read[0], truth.v / held[1] * read[1])]
    out = case.output(mask(CAUSAL))
    live.target = [truth]
    assert signatures(case.judge(out)) == [f"numeric/{kind}/Leaf.forward_extend"]


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


def test_two_limits_ignored_are_two_faults() -> None:
    case = Case(3, 2, sliding_window=2, logit_cap=3)
    assert signatures(case.judge(case.output(mask("11110 11111")))) == [
        "numeric/window_ignored/Leaf.forward_extend",
        "numeric/logit_cap_ignored/Leaf.forward_extend",
    ]


def test_a_tree_and_a_cap_ignored_are_two_faults() -> None:
    case = Case(2, 3, tree=mask("100 110 101"), logit_cap=3)
    assert signatures(case.judge(case.output(mask("11100 11110 11111")))) == [
        "numeric/logit_cap_ignored/Leaf.forward_extend",
        "numeric/tree_mask_ignored/Leaf.forward_extend",
    ]


def test_three_limits_ignored_are_three_faults() -> None:
    case = Case(3, 2, sliding_window=2, logit_cap=3, xai_temperature_len=2)
    assert signatures(case.judge(case.output(mask("11110 11111")))) == [
        "numeric/window_ignored/Leaf.forward_extend",
        "numeric/logit_cap_ignored/Leaf.forward_extend",
        "numeric/temperature_ignored/Leaf.forward_extend",
    ]


def test_a_limit_ignored_is_one_fault_whatever_else_the_world_has() -> None:
    case = Case(3, 2, sliding_window=2, logit_cap=3)
    assert signatures(case.judge(case.output(mask("01110 00111")))) == ["numeric/logit_cap_ignored/Leaf.forward_extend"]


def test_tree_attended_as_a_chain_is_named() -> None:
    case = Case(2, 3, tree=mask("100 110 101"))
    out = case.output(mask("11100 11110 11111"))
    assert signatures(case.judge(out)) == ["numeric/tree_mask_ignored/Leaf.forward_extend"]


def test_decode_is_placed_at_the_method_that_serves_it() -> None:
    case = Case(3, 1)
    assert signatures(case.judge(case.output(mask("1101")))) == ["numeric/newest_prefix_key_unseen/Leaf.forward_decode"]


def test_rule_that_explains_one_request_alone_is_no_explanation() -> None:
    case = Case(3, 2)
    out = case.output(mask("00010 00011"))
    out[0] += 1
    assert signatures(case.judge(out)) == ["numeric/wrong_output/Leaf.forward_extend"]


def test_nan_is_a_fault_of_its_own() -> None:
    case = Case(3, 2)
    out = case.output(mask(CAUSAL))
    out[3, 0] = float("nan")
    (fault,) = case.judge(out)
    assert str(fault.signature) == "numeric/nan/Leaf.forward_extend"
    assert fault.message == "largest error NaN in float32, layer 0, request 1, its token 1 of 2 after 3 in KV"


def test_nan_that_came_with_the_inputs_is_no_fault_of_the_step() -> None:
    case = Case(3, 2)
    case.history.v[0, 0, 0] = float("nan")
    assert case.judge(case.output(mask(CAUSAL))) == []


def test_infinity_is_wrong() -> None:
    case = Case(3, 2)
    out = case.output(mask(CAUSAL))
    out[3, 0] = float("inf")
    assert signatures(case.judge(out)) == ["numeric/wrong_output/Leaf.forward_extend"]


def test_evidence_names_the_worst_token_of_the_worst_request() -> None:
    case = Case(3, 2)
    out = case.output(mask(CAUSAL))
    out[1] += 0.5
    out[2] += 2.0
    (fault,) = case.judge(out)
    assert fault.message == "largest error 2 in float32, layer 0, request 1, its token 0 of 2 after 3 in KV"
    assert fault.evidence["tolerance"] == "1e-05"


def test_evidence_says_how_much_nearer_it_is_to_what_the_wrong_rule_gives() -> None:
    case = Case(3, 2, sliding_window=2, dtype="bfloat16")
    right, wrong = case.output(mask("01110 00111")), case.output(mask("11110 11111"))
    half_way = (right + wrong) / 2
    faults = [case.judge(out)[0] for out in (wrong, half_way)]
    assert [fault.signature.kind for fault in faults] == ["window_ignored", "wrong_output"]
    assert float(faults[0].evidence["times_nearer"]) > 20
    assert "times_nearer" not in faults[1].evidence


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
def test_wide_rows_round_more(monkeypatch: pytest.MonkeyPatch, head_dim: int, error: float, kinds: list[str]) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DIM", head_dim)
    case = Case(3, 2)
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


@pytest.mark.parametrize("shape", [(4, 15), (3, 16), (64, 1)])
def test_output_of_another_shape_is_a_fault_of_its_own(shape: tuple[int, int]) -> None:
    (fault,) = Case(3, 2).judge(torch.zeros(shape))
    assert str(fault.signature) == "numeric/wrong_shape/Leaf.forward_extend"
    assert fault.message == f"layer 0 gave {shape}, expected (4, 16)"
