"""The flashinfer stand-ins: right numbers against float64, in eager mode and through a graph's buffers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.flashinfer_attention import merge_state
from stubs.kernels.flashinfer_decode import BatchDecodeWithPagedKVCacheWrapper as Decode
from stubs.kernels.flashinfer_prefill import BatchPrefillWithPagedKVCacheWrapper as Paged
from stubs.kernels.flashinfer_ragged import BatchPrefillWithRaggedKVCacheWrapper as Ragged
from stubs.reference import attend
from tests.stubs.flashinfer_calls import K, Q, V, decode_plan, ints, keys_of, plan, planned, ragged_plan, workspace

LN2 = 0.6931471805599453


def close(got: Any, wanted: Any) -> bool:
    return bool(torch.allclose(got.double(), wanted, atol=1e-5, rtol=1e-5))


def test_paged_rows_are_the_last_positions_of_their_request() -> None:
    out = planned().forward(Q, (K, V), causal=True, sm_scale=0.25)
    assert close(out[:1], attend(Q[:1], *keys_of(0), scale=0.25))
    assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25))


def test_without_causal_every_row_sees_all_keys() -> None:
    out = planned().forward(Q, (K, V), sm_scale=0.25)
    assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25, mask=torch.ones(3, 5, dtype=torch.bool)))


def test_a_planned_window_shows_as_many_keys_left_of_the_row() -> None:
    out = planned(window_left=1).forward(Q, (K, V), causal=True, sm_scale=0.25, window_left=1)
    assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25, window=1))


def test_a_planned_soft_cap_bends_the_scores() -> None:
    out = planned(logits_soft_cap=0.5).forward(Q, (K, V), causal=True, sm_scale=0.25, logits_soft_cap=0.5)
    assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25, logit_cap=0.5))


def test_a_sink_takes_weight() -> None:
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0])
    out = planned(causal=True, sm_scale=0.25).run(Q, (K, V), sinks=sinks)
    assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25, sinks=sinks))


def test_a_custom_mask_says_all_and_causal_nothing() -> None:
    mask = torch.tensor([1, 0, 1, *[1, 0, 0, 0, 1], *[0, 1, 1, 1, 1], *[1, 1, 1, 1, 0]], dtype=torch.uint8)
    out = planned(custom_mask=mask).forward(Q, (K, V), causal=True, sm_scale=0.25)
    assert close(out[:1], attend(Q[:1], *keys_of(0), scale=0.25, mask=mask[:3].view(1, 3).bool()))
    assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25, mask=mask[3:].view(3, 5).bool()))


def test_a_custom_mask_may_be_longer_than_it_needs_to_be() -> None:
    mask = torch.ones(99, dtype=torch.bool)
    out = planned(custom_mask=mask).forward(Q, (K, V), sm_scale=0.25)
    assert torch.equal(out, planned().forward(Q, (K, V), sm_scale=0.25))


def test_lse_is_in_base_2() -> None:
    _, lse = planned().forward_return_lse(Q, (K, V), sm_scale=0.25)
    k, _ = keys_of(0)
    scores = torch.einsum("hd,khd->hk", Q[0].double(), k.repeat_interleave(2, 1).double()) * 0.25
    assert close(lse[0], scores.logsumexp(-1) / LN2)


def test_scales_of_keys_and_values_count() -> None:
    out = planned().forward(Q, (K, V), sm_scale=0.125, k_scale=2.0, v_scale=3.0)
    assert close(out, 3.0 * planned().forward(Q, (K, V), sm_scale=0.25).double())


def test_a_request_without_a_page_gives_nothing() -> None:
    wrapper = planned(paged_kv_indptr=ints(0, 0, 3), paged_kv_indices=ints(2, 7, 3))
    out, lse = wrapper.forward_return_lse(Q, (K, V), sm_scale=0.25)
    assert (out[0].abs().max(), lse[0].max()) == (0.0, float("-inf"))


def test_a_cache_without_a_page_dimension_has_pages_of_one() -> None:
    indices = ints(10, 11, 2, 4, 5, 14, 15, 6)
    wrapper = planned(paged_kv_indptr=ints(0, 3, 8), paged_kv_indices=indices, page_size=1)
    out = wrapper.forward(Q, (K.flatten(0, 1), V.flatten(0, 1)), causal=True, sm_scale=0.25)
    assert torch.equal(out, planned().forward(Q, (K, V), causal=True, sm_scale=0.25))


def test_both_layouts_and_one_tensor_for_both_caches_say_the_same() -> None:
    expected = planned().forward(Q, (K, V), sm_scale=0.25)
    wrapper = Paged(workspace(), "HND")
    wrapper.plan(**plan())
    assert torch.equal(wrapper.forward(Q, (K.transpose(1, 2), V.transpose(1, 2)), sm_scale=0.25), expected)
    assert torch.equal(planned().forward(Q, torch.stack([K, V], dim=1), sm_scale=0.25), expected)


def test_packed_requests_attend_within_themselves() -> None:
    wrapper = Ragged(workspace())
    wrapper.plan(**ragged_plan())
    k, v = K.flatten(0, 1)[:6], V.flatten(0, 1)[:6]
    out, lse = wrapper.forward_return_lse(Q, k, v, causal=True, sm_scale=0.25)
    assert close(out[:1], attend(Q[:1], k[:2], v[:2], scale=0.25))
    assert close(out[1:], attend(Q[1:], k[2:], v[2:], scale=0.25))
    assert lse.shape == (4, 4)


def test_a_decode_row_sees_all_keys_of_its_request() -> None:
    wrapper = Decode(workspace())
    wrapper.plan(**decode_plan())
    out = wrapper.forward(Q[:2], (K, V), sm_scale=0.25)
    assert close(out[:1], attend(Q[:1], *keys_of(0), scale=0.25))
    assert close(out[1:], attend(Q[1:2], *keys_of(1), scale=0.25))


def test_merging_the_parts_of_a_row_gives_the_whole() -> None:
    k, v = keys_of(1)
    parts = []
    for rows in (slice(0, 2), slice(2, 5)):
        wrapper = Ragged(workspace())
        count = len(k[rows])
        wrapper.plan(**ragged_plan(qo_indptr=ints(0, 1), kv_indptr=ints(0, count)))
        parts += wrapper.forward_return_lse(Q[:1], k[rows], v[rows], sm_scale=0.25)
    merged, _ = merge_state(*parts)
    assert close(merged, attend(Q[:1], k, v, scale=0.25))


def test_merging_two_empty_parts_gives_nothing() -> None:
    empty = torch.zeros(1, 2, 8), torch.full((1, 2), float("-inf"))
    merged, lse = merge_state(*empty, *empty)
    assert (merged.abs().max(), lse.max()) == (0.0, float("-inf"))
