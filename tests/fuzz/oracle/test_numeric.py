"""The numeric oracle on planted outputs: what is right, what is wrong, and which wrong rule explains it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from stubs.live import History
from stubs.model_attention import sinks_of
from tests.fuzz.oracle.planted_output import CAUSAL, DIM, KV_HEADS, Case, in_fp8, mask, signatures


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
        ({}, "11111 11111", 0.0, "causal_mask_ignored"),
        ({"sliding_window": 2}, "00110 00111", 0.0, "wrong_output"),
    ],
)
def test_wrong_output_is_named_by_the_rule_that_explains_it(
    world: dict[str, int], seen: str, cap: float, kind: str
) -> None:
    case = Case(3, 2, **world)
    assert signatures(case.judge(case.output(mask(seen), cap))) == [f"numeric/{kind}/Leaf.forward_extend"]


@pytest.mark.parametrize(
    "seen",
    ["1111000 1111100 1111111 1111111", "1111100 1111100 1111111 1111111"],
    ids=["second half", "both halves"],
)
@pytest.mark.parametrize(("wrapper", "kind"), [("tbo", "causal_mask_ignored"), ("", "wrong_output")])
def test_rule_that_halves_of_a_split_request_break_is_named(wrapper: str, kind: str, seen: str) -> None:
    case = Case(3, 4, wrapper=wrapper)
    (fault,) = case.judge(case.output(mask(seen)))
    assert str(fault.signature) == f"numeric/{kind}/Leaf.forward_extend"
    assert (float(fault.evidence.get("times_nearer", "0")) > 1e4) == (wrapper == "tbo")


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
    ("held", "read", "seen", "kinds"),
    [
        ((1, 1), (2, 4), CAUSAL, ["stored_kv_wrong"]),
        ((2, 4), (1, 1), CAUSAL, ["kv_scale_ignored"]),
        ((2, 4), (2, 1), CAUSAL, ["value_scale_ignored"]),
        ((2, 4), (2, 9), CAUSAL, ["wrong_output"]),
        ((1, 1), (2, 4), "11100 11100", ["own_kv_unseen", "stored_kv_wrong"]),
        ((2, 4), (2, 1), "11100 11100", ["own_kv_unseen", "value_scale_ignored"]),
    ],
)
def test_a_scale_left_out_is_laid_on_whoever_stored_the_prefix_or_on_whoever_reads_it(
    held: tuple[int, int], read: tuple[int, int], seen: str, kinds: list[str]
) -> None:
    """K and V of the prefix lie there divided by ``held`` and are read times ``read``; their scales are 2 and 4."""
    case = Case(3, 2, dtype="bfloat16", kv_dtype="fp8_e4m3", kv_scale=16)
    case.q *= 0.1  # so that every key has weight
    case.k, case.v = in_fp8(case.k), in_fp8(case.v)
    live, truth = case.rows[1].live, History(in_fp8(case.history.k), in_fp8(case.history.v))
    live.slots, pool = [6, 1, 4, 2, 3], [torch.zeros(8, KV_HEADS, DIM, dtype=torch.uint8) for _ in "KV"]
    for buffer, rows, scale in zip(pool, (truth.k, truth.v), held, strict=True):
        buffer[live.slots[:3]] = (rows / scale).to(torch.float8_e4m3fn).view(torch.uint8)
    case.pool = SimpleNamespace(k_buffer=pool[:1], v_buffer=pool[1:], dtype=torch.float8_e4m3fn)
    live.target = [History(truth.k / held[0] * read[0], truth.v / held[1] * read[1])]
    out = case.output(mask(seen))
    live.target = [truth]
    assert signatures(case.judge(out)) == [f"numeric/{kind}/Leaf.forward_extend" for kind in kinds]


@pytest.mark.parametrize(
    ("share", "kinds"), [(0.7, ["stored_kv_wrong"]), (1, ["logit_cap_ignored", "stored_kv_wrong"])]
)
def test_a_rule_with_more_things_wrong_is_far_nearer_or_the_other_has_the_name(share: float, kinds: list[str]) -> None:
    """The output lies ``share`` of the way from KV stored bare to such KV read without the cap: near to both."""
    case = Case(3, 2, dtype="bfloat16", kv_dtype="fp8_e4m3", kv_scale=16, logit_cap=6)
    case.q *= 0.5
    case.k, case.v = in_fp8(case.k), in_fp8(case.v)
    live, truth = case.rows[1].live, History(in_fp8(case.history.k), in_fp8(case.history.v))
    live.slots, pool = [6, 1, 4, 2, 3], [torch.zeros(8, KV_HEADS, DIM, dtype=torch.uint8) for _ in "KV"]
    for buffer, rows in zip(pool, (truth.k, truth.v), strict=True):
        buffer[live.slots[:3]] = rows.to(torch.float8_e4m3fn).view(torch.uint8)
    case.pool = SimpleNamespace(k_buffer=pool[:1], v_buffer=pool[1:], dtype=torch.float8_e4m3fn)
    live.target = [History(truth.k * 2, truth.v * 4)]
    capped, uncapped = case.output(mask(CAUSAL), 6), case.output(mask(CAUSAL))
    live.target = [truth]
    out = capped + share * (uncapped - capped)
    assert signatures(case.judge(out)) == [f"numeric/{kind}/Leaf.forward_extend" for kind in kinds]


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


@pytest.mark.parametrize(
    ("seen", "token", "is_fill"),
    [
        ("11000 11100 11010 11011", 3, True),
        ("11000 11100 11110 11001", 2, False),
        ("11000 11100 11110 11111", 2, False),
    ],
)
def test_a_fault_of_what_fills_a_tree_up_alone_says_so(seen: str, token: int, is_fill: bool) -> None:
    case = Case(1, 4, tree=mask("1000 1100 1010 1001"), fill=1)
    (fault,) = case.judge(case.output(mask(seen)))
    assert (f"its token {token} of 4" in fault.message, "only fills the tree up" in fault.message) == (True, is_fill)


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


@pytest.mark.parametrize(
    ("cap", "times", "left", "kind"),
    [
        (200, 33, 0.0, "logit_cap_ignored"),
        (200, 33, 0.2, "logit_cap_ignored"),
        (200, 33, 0.7, "wrong_output"),  # within the tolerance, but not at rounding level: it may be by chance
        (20, 3300, 0.7, "logit_cap_ignored"),
        (20, 3300, 1.1, "wrong_output"),
    ],
)
def test_what_is_wrong_by_little_is_named_by_a_rule_that_leaves_no_more_than_rounding(
    cap: int, times: float, left: float, kind: str
) -> None:
    """Without its cap the output is some ``times`` its tolerance off, and ``left`` of it from what that gives."""
    case = Case(3, 2, logit_cap=cap)
    out = case.output(mask(CAUSAL)).double()
    out[2, 0] += left * 1e-5 * (1 + out[2, 0].abs())
    (fault,) = case.judge(out)
    assert fault.signature.kind == kind
    assert times / 2 < float(fault.evidence["times_tolerance"]) < times * 2


@pytest.mark.parametrize("shape", [(4, 15), (3, 16), (64, 1)])
def test_output_of_another_shape_is_a_fault_of_its_own(shape: tuple[int, int]) -> None:
    (fault,) = Case(3, 2).judge(torch.zeros(shape))
    assert str(fault.signature) == "numeric/wrong_shape/Leaf.forward_extend"
    assert fault.message == f"layer 0 gave {shape}, expected (4, 16)"
