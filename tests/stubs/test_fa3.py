"""The FlashAttention 3 stand-in: right numbers, and a refusal that names the argument for each line of the contract."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import ContractBreach, StandInGap
from stubs.kernels.door import replaying
from stubs.kernels.fa3 import flash_attn_varlen_func, flash_attn_with_kvcache, get_scheduler_metadata
from tests.stubs.breach import refused


def ints(*values: int) -> Any:
    return torch.tensor(values, dtype=torch.int32)


def paged_call(**changes: Any) -> dict[str, Any]:
    """Two requests of 3 and 5 tokens in pages of 2, with 1 and 2 queries; 4 heads over 2 kv heads, head dim 8."""
    random = torch.Generator().manual_seed(7)
    call: dict[str, Any] = {
        "q": torch.randn(3, 4, 8, generator=random),
        "k_cache": torch.randn(8, 2, 2, 8, generator=random),
        "v_cache": torch.randn(8, 2, 2, 8, generator=random),
        "page_table": torch.tensor([[5, 1, 0], [2, 7, 3]], dtype=torch.int32),
        "cache_seqlens": ints(3, 5),
        "cu_seqlens_q": ints(0, 1, 3),
        "max_seqlen_q": 2,
        "softmax_scale": 0.25,
        "causal": True,
    }
    return call | changes


def packed_call(**changes: Any) -> dict[str, Any]:
    random = torch.Generator().manual_seed(8)
    call: dict[str, Any] = {
        "q": torch.randn(4, 2, 8, generator=random),
        "k": torch.randn(6, 1, 8, generator=random),
        "v": torch.randn(6, 1, 8, generator=random),
        "cu_seqlens_q": ints(0, 1, 4),
        "cu_seqlens_k": ints(0, 2, 6),
        "max_seqlen_q": 3,
        "max_seqlen_k": 4,
        "causal": True,
    }
    return call | changes


def one_row(q: Any, k: Any, v: Any, scale: float, sink: float | None = None, cap: float = 0.0) -> tuple[Any, Any]:
    """Softmax attention of one query row in float64, written out; q [heads, d], k and v [keys, kv heads, d]."""
    outs, totals = [], []
    group = q.shape[0] // k.shape[1]
    for head in range(q.shape[0]):
        scores = k[:, head // group].double() @ q[head].double() * scale
        if cap:
            scores = cap * torch.tanh(scores / cap)
        weights = scores.exp()
        total = weights.sum() + (torch.tensor(sink).double().exp() if sink is not None else 0.0)
        outs.append((weights / total) @ v[:, head // group].double())
        totals.append(total.log())
    return torch.stack(outs), torch.stack(totals)


def keys_of(call: dict[str, Any], pages: list[int], length: int) -> tuple[Any, Any]:
    return tuple(call[name][pages].flatten(0, 1)[:length] for name in ("k_cache", "v_cache"))


def close(got: Any, expected: Any) -> bool:
    return bool(torch.allclose(got.double(), expected, atol=1e-5, rtol=1e-5))


def test_each_causal_query_sees_the_keys_up_to_its_own_position() -> None:
    call = paged_call()
    out = flash_attn_with_kvcache(**call)
    first, second = keys_of(call, [5, 1], 3), keys_of(call, [2, 7, 3], 5)
    assert close(out[0], one_row(call["q"][0], *first, 0.25)[0])
    assert close(out[1], one_row(call["q"][1], second[0][:4], second[1][:4], 0.25)[0])
    assert close(out[2], one_row(call["q"][2], *second, 0.25)[0])


def test_lse_is_the_natural_log_by_head_and_row() -> None:
    call = paged_call()
    _, lse = flash_attn_with_kvcache(**call, return_softmax_lse=True)
    assert lse.shape == (4, 3)
    assert close(lse[:, 0], one_row(call["q"][0], *keys_of(call, [5, 1], 3), 0.25)[1])


def test_without_causal_every_query_sees_every_key() -> None:
    call = paged_call(causal=False)
    out = flash_attn_with_kvcache(**call)
    assert close(out[1], one_row(call["q"][1], *keys_of(call, [2, 7, 3], 5), 0.25)[0])


def test_a_left_window_of_one_leaves_the_query_and_one_key_before_it() -> None:
    call = paged_call(window_size=(1, 0))
    out = flash_attn_with_kvcache(**call)
    k, v = keys_of(call, [2, 7, 3], 5)
    assert close(out[2], one_row(call["q"][2], k[3:5], v[3:5], 0.25)[0])


def test_attention_chunk_cuts_at_multiples_of_the_chunk() -> None:
    call = paged_call(attention_chunk=4)
    out = flash_attn_with_kvcache(**call)
    k, v = keys_of(call, [2, 7, 3], 5)
    assert close(out[2], one_row(call["q"][2], k[4:5], v[4:5], 0.25)[0])
    assert close(out[1], one_row(call["q"][1], k[:4], v[:4], 0.25)[0])


def test_softcap_bends_the_scaled_scores() -> None:
    call = paged_call(softcap=0.5)
    out = flash_attn_with_kvcache(**call)
    assert close(out[0], one_row(call["q"][0], *keys_of(call, [5, 1], 3), 0.25, cap=0.5)[0])


def test_a_sink_takes_weight_and_counts_in_the_lse() -> None:
    call = paged_call(sinks=torch.full((4,), 0.75))
    out, lse = flash_attn_with_kvcache(**call, return_softmax_lse=True)
    expected, total = one_row(call["q"][0], *keys_of(call, [5, 1], 3), 0.25, sink=0.75)
    assert close(out[0], expected)
    assert close(lse[:, 0], total)


def test_descales_multiply_scores_and_values() -> None:
    call = paged_call(k_descale=torch.full((2, 2), 2.0), v_descale=torch.full((2, 2), 3.0))
    out = flash_attn_with_kvcache(**call)
    expected = one_row(call["q"][0], *keys_of(call, [5, 1], 3), 0.5)[0] * 3.0
    assert close(out[0], expected)


def test_qv_adds_its_product_with_the_values_to_the_scores() -> None:
    call = paged_call()
    qv = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(9))
    out = flash_attn_with_kvcache(**call, qv=qv)
    k, v = keys_of(call, [5, 1], 3)
    joined = one_row(torch.cat([call["q"][0], qv[0]], -1), torch.cat([k, v], -1), v, 0.25)[0]
    assert close(out[0], joined)


def test_a_request_without_keys_gives_zero_and_minus_infinity() -> None:
    call = paged_call(cache_seqlens=ints(0, 5), causal=False)
    out, lse = flash_attn_with_kvcache(**call, return_softmax_lse=True)
    assert out[0].abs().max() == 0.0
    assert bool((lse[:, 0] == float("-inf")).all())


def test_out_is_filled_and_returned() -> None:
    out = torch.zeros(3, 4, 8)
    assert flash_attn_with_kvcache(**paged_call(), out=out) is out
    assert torch.equal(out, flash_attn_with_kvcache(**paged_call()))


def test_rows_that_no_request_covers_are_nan_without_out() -> None:
    out = flash_attn_with_kvcache(**paged_call(cu_seqlens_q=ints(0, 1, 2)))
    assert bool(out[2].isnan().all())
    assert not bool(out[:2].isnan().any())


def test_rows_that_no_request_covers_keep_what_out_held() -> None:
    out = torch.full((3, 4, 8), 4.5)
    flash_attn_with_kvcache(**paged_call(cu_seqlens_q=ints(0, 1, 2)), out=out)
    assert bool((out[2] == 4.5).all())


def test_a_padded_row_of_one_key_and_many_queries_is_let_pass() -> None:
    out = flash_attn_with_kvcache(**paged_call(cache_seqlens=ints(3, 1)))
    assert out[1].abs().max() == 0.0


def test_page_ids_left_of_the_window_are_not_read() -> None:
    call = paged_call(window_size=(0, 0), page_table=torch.tensor([[5, 1, 0], [99, 7, 3]], dtype=torch.int32))
    k, v = keys_of(call, [7, 3], 3)
    assert close(flash_attn_with_kvcache(**call)[2], one_row(call["q"][2], k[2:], v[2:], 0.25)[0])


PAGED_BREACHES = [
    ("q", {"q": torch.zeros(3, 4, 7)}, None),
    ("q", {"q": torch.zeros(3, 3, 8)}, None),
    ("k_cache", {"k_cache": torch.zeros(8, 2, 8, 2).transpose(2, 3)}, None),
    ("k_cache", {"k_cache": torch.zeros(8, 2, 2, 8, dtype=torch.float16)}, None),
    ("v_cache", {"v_cache": torch.zeros(7, 2, 2, 8)}, None),
    ("page_table", {"page_table": torch.zeros(2, 3, dtype=torch.int64)}, None),
    ("page_table", {"page_table": torch.zeros(3, 3, dtype=torch.int32)}, None),
    ("page_table", {"page_table": torch.zeros(2, 2, dtype=torch.int32)}, 1),
    ("page_table", {"page_table": torch.tensor([[5, 1, 0], [2, 8, 3]], dtype=torch.int32)}, 1),
    ("page_table", {"page_table": torch.tensor([[5, -1, 0], [2, 7, 3]], dtype=torch.int32)}, 0),
    ("cache_seqlens", {"cache_seqlens": torch.tensor([3, 5])}, None),
    ("cache_seqlens", {"cache_seqlens": ints(3, -5)}, 1),
    ("cache_seqlens", {"cu_seqlens_q": ints(0, 0, 3), "max_seqlen_q": 3, "cache_seqlens": ints(3, 2)}, 1),
    ("cache_seqlens", {"cache_seqlens": None}, None),
    ("cu_seqlens_q", {"cu_seqlens_q": torch.tensor([0, 1, 3])}, None),
    ("cu_seqlens_q", {"cu_seqlens_q": ints(0, 1)}, None),
    ("cu_seqlens_q", {"cu_seqlens_q": ints(1, 1, 3)}, None),
    ("cu_seqlens_q", {"cu_seqlens_q": ints(0, 3, 1)}, 1),
    ("cu_seqlens_q", {"cu_seqlens_q": ints(0, 1, 4), "max_seqlen_q": 3}, None),
    ("max_seqlen_q", {"max_seqlen_q": 1}, 1),
    ("max_seqlen_q", {"max_seqlen_q": None}, None),
    ("cu_seqlens_k_new", {"cu_seqlens_k_new": ints(0, 3, 1)}, 1),
    ("cu_seqlens_k_new", {"cu_seqlens_k_new": ints(0, 3)}, None),
    ("scheduler_metadata", {"scheduler_metadata": torch.zeros(16, dtype=torch.int32)}, None),
    ("sinks", {"sinks": torch.zeros(2)}, None),
    ("k_descale", {"k_descale": torch.ones(2)}, None),
    ("qv", {"qv": torch.zeros(3, 4, 7)}, None),
    ("out", {"out": torch.zeros(3, 4, 16)}, None),
    ("out", {"out": torch.zeros(3, 4, 8, dtype=torch.float16)}, None),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), PAGED_BREACHES)
def test_a_paged_call_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused("flash_attn_with_kvcache", argument, request_at_fault):
        flash_attn_with_kvcache(**paged_call(**changes))


def test_the_refusal_reads_as_function_argument_request_numbers() -> None:
    table = torch.tensor([[5, 1, 0], [2, 8, 3]], dtype=torch.int32)
    with pytest.raises(ContractBreach) as caught:
        flash_attn_with_kvcache(**paged_call(page_table=table))
    text = "flash_attn_with_kvcache: page_table of request 1: page id 8 at column 1, expected 0..7"
    assert str(caught.value) == text


def test_what_sglang_does_not_use_is_a_gap_and_not_a_breach() -> None:
    with pytest.raises(StandInGap, match="rotary_cos"):
        flash_attn_with_kvcache(**paged_call(), rotary_cos=torch.zeros(1))


def test_packed_requests_attend_within_themselves() -> None:
    call = packed_call()
    out, lse = flash_attn_varlen_func(**call, return_softmax_lse=True)
    expected, total = one_row(call["q"][2], call["k"][2:5], call["v"][2:5], 8**-0.5)
    assert close(out[2], expected)
    assert close(lse[:, 2], total)


VARLEN_BREACHES = [
    ("cu_seqlens_q", {"cu_seqlens_q": ints(0, 1, 3)}, None),
    ("cu_seqlens_q", {"cu_seqlens_q": ints(0, 4, 3)}, 1),
    ("cu_seqlens_k", {"cu_seqlens_k": ints(0, 2, 5)}, None),
    ("cu_seqlens_k", {"cu_seqlens_k": ints(0, 6)}, None),
    ("cu_seqlens_k", {"cu_seqlens_k": ints(0, 4, 6)}, 1),
    ("max_seqlen_q", {"max_seqlen_q": 2}, 1),
    ("max_seqlen_k", {"max_seqlen_k": 3}, 1),
    ("v", {"v": torch.zeros(5, 1, 8)}, None),
    ("k", {"k": torch.zeros(6, 1, 8, dtype=torch.float16)}, None),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), VARLEN_BREACHES)
def test_a_packed_call_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused("flash_attn_varlen_func", argument, request_at_fault):
        flash_attn_varlen_func(**packed_call(**changes))


def schedule_call(**changes: Any) -> dict[str, Any]:
    call: dict[str, Any] = {"batch_size": 2, "max_seqlen_q": 1, "max_seqlen_k": 5, "num_heads": 4, "num_heads_k": 2}
    return call | {"headdim": 8, "cache_seqlens": ints(3, 5)} | changes


def test_a_schedule_for_five_requests_has_33_entries() -> None:
    schedule = get_scheduler_metadata(**schedule_call(batch_size=5, cache_seqlens=ints(1, 1, 1, 1, 1)))
    assert schedule.shape == (33,)
    assert schedule.dtype == torch.int32


def test_a_schedule_for_as_many_requests_is_taken() -> None:
    schedule = get_scheduler_metadata(**schedule_call())
    assert torch.equal(
        flash_attn_with_kvcache(**paged_call(), scheduler_metadata=schedule), flash_attn_with_kvcache(**paged_call())
    )


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("cache_seqlens", {"cache_seqlens": torch.tensor([3, 5])}),
        ("cache_seqlens", {"batch_size": 3}),
        ("num_heads", {"num_heads": 3}),
        ("max_seqlen_k", {"max_seqlen_k": 4}),
        ("cu_seqlens_q", {"cu_seqlens_q": ints(0, 1)}),
    ],
)
def test_a_schedule_outside_the_contract_is_refused(argument: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ContractBreach) as caught:
        get_scheduler_metadata(**schedule_call(**changes))
    assert (caught.value.function, caught.value.argument) == ("get_scheduler_metadata", argument)


def test_in_a_replay_rows_past_the_longest_are_left_out() -> None:
    out, right = torch.full((3, 4, 8), 7.0), flash_attn_with_kvcache(**paged_call())
    with replaying():
        flash_attn_with_kvcache(**paged_call(max_seqlen_q=1, out=out))
    assert torch.equal(out, torch.cat([right[:2], torch.full((1, 4, 8), 7.0)]))
