"""The float64 reference: values that can be worked out by hand."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from stubs.reference import TOLERANCES, attend, visible


def flat(*values: float) -> torch.Tensor:
    """One kv head, head dim 1."""
    return torch.tensor(values).view(-1, 1, 1)


ZERO = flat(0.0, 0.0)


def test_equal_scores_average_the_values_seen() -> None:
    out = attend(ZERO, flat(1, 2, 3, 4), flat(1, 2, 3, 6), scale=1.0)
    assert out.flatten().tolist() == pytest.approx([2.0, 3.0], abs=1e-15)


def test_scores_are_scaled_before_the_softmax() -> None:
    out = attend(flat(2.0), flat(0.0, math.log(3.0)), flat(0.0, 4.0), scale=0.5)
    assert out.item() == pytest.approx(3.0, abs=1e-6)


def test_a_window_of_two_shows_the_query_and_two_before_it() -> None:
    out = attend(ZERO, flat(0, 0, 0, 0, 0), flat(100, 1, 2, 3, 7), scale=1.0, window=2)
    assert out.flatten().tolist() == pytest.approx([2.0, 4.0], abs=1e-15)


def test_chunks_of_three_show_a_query_its_own_alone() -> None:
    # Queries at 2, 3 and 5 of chunks 0..2 and 3..5: the mean of 1, 2, 6, then 10 alone, then of 10, 20, 60.
    out = attend(flat(0, 0, 0, 0), flat(0, 0, 0, 0, 0, 0), flat(1, 2, 6, 10, 20, 60), scale=1.0, chunk=3)
    assert out.flatten().tolist() == pytest.approx([3.0, 10.0, 15.0, 30.0], abs=1e-12)


def test_chunks_are_counted_from_the_first_position_whatever_is_asked_for() -> None:
    # SGLang's worked example beside make_local_attention_virtual_batches: chunks of 4, 10 queries at the end of 17.
    seen = visible(10, 17, chunk=4)
    assert seen.sum(1).tolist() == [4, 1, 2, 3, 4, 1, 2, 3, 4, 1]
    assert seen[1].nonzero().flatten().tolist() == [8]
    assert seen[4].nonzero().flatten().tolist() == [8, 9, 10, 11]


def test_a_mask_replaces_causality() -> None:
    mask = torch.tensor([[True, False, True], [False, False, True]])
    out = attend(ZERO, flat(0, 0, 0), flat(1, 50, 3), scale=1.0, mask=mask)
    assert out.flatten().tolist() == pytest.approx([2.0, 3.0], abs=1e-15)


def test_the_cap_bends_the_scaled_score() -> None:
    out = attend(flat(1.0), flat(0.0, 20.0), flat(0.0, 1.0), scale=0.5, logit_cap=2.0)
    bent = 2.0 * math.tanh(5.0)
    assert out.item() == pytest.approx(math.exp(bent) / (1 + math.exp(bent)), abs=1e-12)


def test_behind_the_temperature_length_scores_grow_with_the_position() -> None:
    # The query at position 4 stands behind 2: its scores are doubled, for log(4) / log(2) is 2. That at 2 does not.
    keys, values = flat(0.0, 0.0, math.log(3.0), 0.0, 0.0), flat(0, 0, 1, 0, 0)
    out = attend(flat(1.0, 1.0, 1.0), keys, values, scale=1.0, temperature_len=2)
    assert out.flatten().tolist() == pytest.approx(
        [3 / 5, _share(3 ** (math.log(3) / math.log(2)), 3), 9 / 13], abs=1e-6
    )


def _share(weight: float, others: int) -> float:
    return weight / (weight + others)


def test_a_sink_takes_weight_and_gives_nothing() -> None:
    out = attend(flat(0.0), flat(0.0), flat(6.0), scale=1.0, sinks=torch.tensor([math.log(2.0)]))
    assert out.item() == pytest.approx(2.0, abs=1e-6)


def test_query_heads_share_kv_heads_in_order() -> None:
    values = torch.tensor([[[1.0], [2.0]]])
    out = attend(torch.zeros(1, 4, 1), torch.zeros(1, 2, 1), values, scale=1.0)
    assert out.flatten().tolist() == [1.0, 1.0, 2.0, 2.0]


def test_a_query_that_sees_no_key_gives_zero() -> None:
    out = attend(flat(1.0), flat(1.0), flat(9.0), scale=1.0, mask=torch.zeros(1, 1, dtype=torch.bool))
    assert out.item() == 0.0


def test_what_is_not_seen_may_hold_infinity() -> None:
    out = attend(flat(0.0), flat(1.0, 1.0), flat(math.inf, 3.0), scale=1.0, window=0)
    assert out.item() == 3.0


def test_the_answer_is_float64() -> None:
    assert attend(ZERO, flat(1, 2), flat(1, 2), scale=1.0).dtype == torch.float64


def test_visible_is_bottom_right_aligned() -> None:
    assert visible(2, 4, 1).int().tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]


def test_a_mask_and_a_window_together_are_refused() -> None:
    with pytest.raises(AssertionError, match="fold the window"):
        attend(ZERO, ZERO, ZERO, scale=1.0, mask=torch.ones(2, 2, dtype=torch.bool), window=1)


def test_tolerances_widen_with_the_dtype() -> None:
    assert [TOLERANCES[d] for d in (torch.float32, torch.float16, torch.bfloat16)] == [1e-5, 2e-3, 1e-2]
