"""The TensorRT-LLM stand-ins: right numbers, and a refusal that names the argument for each line of the contract."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import ContractBreach, StandInGap
from stubs.kernels.door import replaying
from stubs.kernels.trtllm import (
    get_trtllm_gen_multi_ctas_kv_counter_bytes,
    trtllm_batch_context_with_kv_cache,
    trtllm_batch_decode_with_kv_cache,
)
from stubs.reference import attend
from tests.stubs.breach import refused

DECODE = "trtllm_batch_decode_with_kv_cache"
CONTEXT = "trtllm_batch_context_with_kv_cache"


def ints(*values: int) -> Any:
    return torch.tensor(values, dtype=torch.int32)


def caches() -> dict[str, Any]:
    """Two requests of 3 and 5 tokens in pages of 2, HND views of NHD memory; 4 heads over 2 kv heads, head dim 8."""
    random = torch.Generator().manual_seed(7)
    k, v = (torch.randn(8, 2, 2, 8, generator=random).transpose(1, 2) for _ in range(2))
    return {
        "kv_cache": (k, v),
        "workspace_buffer": torch.zeros(16, dtype=torch.uint8),
        "block_tables": torch.tensor([[5, 1, 0], [2, 7, 3]], dtype=torch.int32),
        "seq_lens": ints(3, 5),
        "bmm1_scale": 0.25,
        "bmm2_scale": 1.0,
    }


def decode_call(**changes: Any) -> dict[str, Any]:
    """Two query rows a request."""
    q = torch.randn(4, 4, 8, generator=torch.Generator().manual_seed(8))
    return caches() | {"query": q, "max_seq_len": 5, "q_len_per_req": 2} | changes


def context_call(**changes: Any) -> dict[str, Any]:
    """One query row of the first request, three of the second."""
    q = torch.randn(4, 4, 8, generator=torch.Generator().manual_seed(9))
    lengths = {"cum_seq_lens_q": ints(0, 1, 4), "cum_seq_lens_kv": ints(0, 3, 8), "batch_size": 2}
    return caches() | {"query": q, "max_q_len": 3, "max_kv_len": 5} | lengths | changes


def keys_of(call: dict[str, Any], pages: list[int], length: int) -> tuple[Any, Any]:
    """K and V [length, kv heads, head dim] of one request, gathered page by page."""
    k, v = (torch.cat([cache[page].transpose(0, 1) for page in pages])[:length] for cache in call["kv_cache"])
    return k, v


def close(got: Any, wanted: Any) -> bool:
    return bool(torch.allclose(got.double(), wanted, atol=1e-5, rtol=1e-5))


def test_decode_rows_are_the_last_positions_of_their_request() -> None:
    call = decode_call()
    out = trtllm_batch_decode_with_kv_cache(**call)
    assert close(out[:2], attend(call["query"][:2], *keys_of(call, [5, 1], 3), scale=0.25))
    assert close(out[2:], attend(call["query"][2:], *keys_of(call, [2, 7, 3], 5), scale=0.25))


def test_context_rows_are_the_last_positions_of_their_request() -> None:
    call = context_call()
    out = trtllm_batch_context_with_kv_cache(**call)
    assert close(out[:1], attend(call["query"][:1], *keys_of(call, [5, 1], 3), scale=0.25))
    assert close(out[1:], attend(call["query"][1:], *keys_of(call, [2, 7, 3], 5), scale=0.25))


def test_a_window_shows_as_many_keys_left_of_the_row() -> None:
    call = context_call(window_left=1)
    expected = attend(call["query"][1:], *keys_of(call, [2, 7, 3], 5), scale=0.25, window=1)
    assert close(trtllm_batch_context_with_kv_cache(**call)[1:], expected)


def test_a_sink_takes_weight() -> None:
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0])
    call = decode_call(sinks=[sinks])
    expected = attend(call["query"][2:], *keys_of(call, [2, 7, 3], 5), scale=0.25, sinks=sinks)
    assert close(trtllm_batch_decode_with_kv_cache(**call)[2:], expected)


def test_without_a_causal_mask_every_row_sees_all_keys() -> None:
    call = context_call(causal=False)
    k, v = keys_of(call, [2, 7, 3], 5)
    expected = attend(call["query"][1:], k, v, scale=0.25, mask=torch.ones(3, 5, dtype=torch.bool))
    assert close(trtllm_batch_context_with_kv_cache(**call)[1:], expected)


def test_requests_of_uneven_rows_are_told_by_their_cumulative_lengths() -> None:
    call = decode_call(q_len_per_req=None, max_q_len=3, cum_seq_lens_q=ints(0, 1, 4))
    expected = attend(call["query"][1:], *keys_of(call, [2, 7, 3], 5), scale=0.25)
    assert close(trtllm_batch_decode_with_kv_cache(**call)[1:], expected)


def test_both_layouts_and_one_tensor_for_both_caches_say_the_same() -> None:
    call = decode_call()
    k, v = call["kv_cache"]
    expected = trtllm_batch_decode_with_kv_cache(**call)
    layout = {"kv_cache": (k.transpose(1, 2), v.transpose(1, 2)), "kv_layout": "NHD"}
    assert torch.equal(trtllm_batch_decode_with_kv_cache(**call | layout), expected)
    joined = {"kv_cache": torch.stack([k, v], dim=1)}
    assert torch.equal(trtllm_batch_decode_with_kv_cache(**call | joined), expected)


def test_scales_may_be_tensors() -> None:
    call = decode_call()
    scales = {"bmm1_scale": torch.tensor(0.25), "bmm2_scale": torch.tensor([2.0])}
    assert close(
        trtllm_batch_decode_with_kv_cache(**call | scales), 2 * trtllm_batch_decode_with_kv_cache(**call).double()
    )


def test_rows_behind_the_last_request_keep_what_the_output_held() -> None:
    out = torch.full((4, 4, 8), 4.5)
    given = trtllm_batch_context_with_kv_cache(**context_call(cum_seq_lens_q=ints(0, 1, 3)), out=out)
    assert given is out
    assert bool((out[3] == 4.5).all())


def test_without_an_output_they_are_nan() -> None:
    out = trtllm_batch_context_with_kv_cache(**context_call(cum_seq_lens_q=ints(0, 1, 3)))
    assert bool(out[3].isnan().all())


def test_page_ids_left_of_the_window_are_not_read() -> None:
    table = torch.tensor([[5, 1, 0], [99, 7, 3]], dtype=torch.int32)
    call = decode_call(block_tables=table, window_left=1)
    k, v = keys_of(call, [7, 3], 3)
    expected = attend(call["query"][2:], k, v, scale=0.25, window=1)
    assert close(trtllm_batch_decode_with_kv_cache(**call)[2:], expected)


def test_a_padded_row_of_one_key_and_two_queries_is_let_pass() -> None:
    out = trtllm_batch_decode_with_kv_cache(**decode_call(seq_lens=ints(3, 1)))
    assert out[2].abs().max() == 0.0


def test_counters_of_two_requests_of_four_heads_take_as_many_bytes_as_there_are_cores() -> None:
    assert get_trtllm_gen_multi_ctas_kv_counter_bytes(2, 4, 132) == 544


SHARED_BREACHES = [
    ("query", {"query": torch.zeros(4, 4, 7)}, None),
    ("query", {"query": torch.zeros(4, 3, 8)}, None),
    ("query", {"query": torch.zeros(4, 32)}, None),
    ("query", {"query": torch.zeros(4, 8, 4).transpose(1, 2)}, None),
    ("k_cache", {"kv_cache": (torch.zeros(8, 2, 8, 2).transpose(2, 3), torch.zeros(8, 2, 2, 8))}, None),
    ("k_cache", {"kv_cache": (torch.zeros(8, 2, 2, 8).half(), torch.zeros(8, 2, 2, 8).half())}, None),
    ("k_cache", {"kv_cache": (torch.zeros(8, 2, 16), torch.zeros(8, 2, 16))}, None),
    ("v_cache", {"kv_cache": (torch.zeros(8, 2, 2, 8), torch.zeros(7, 2, 2, 8))}, None),
    ("v_cache", {"kv_cache": (torch.zeros(8, 2, 2, 8), torch.zeros(8, 2, 2, 8).half())}, None),
    ("kv_cache", {"kv_cache": torch.zeros(8, 3, 2, 2, 8)}, None),
    ("kv_layout", {"kv_layout": "DNH"}, None),
    ("block_tables", {"block_tables": torch.zeros(2, 3, dtype=torch.int64)}, None),
    ("block_tables", {"block_tables": torch.zeros(3, 3, dtype=torch.int32)}, None),
    ("block_tables", {"block_tables": torch.zeros(3, 2, dtype=torch.int32).T}, None),
    ("block_tables", {"block_tables": torch.zeros(2, 2, dtype=torch.int32)}, 1),
    ("block_tables", {"block_tables": torch.tensor([[5, 1, 0], [2, 8, 3]], dtype=torch.int32)}, 1),
    ("block_tables", {"block_tables": torch.tensor([[5, -1, 0], [2, 7, 3]], dtype=torch.int32)}, 0),
    ("seq_lens", {"seq_lens": torch.tensor([3, 5])}, None),
    ("seq_lens", {"seq_lens": ints(3, -5)}, 1),
    ("seq_lens", {"seq_lens": ints(3, 0, 5, 0)[::2]}, None),
    ("workspace_buffer", {"workspace_buffer": torch.zeros(4)}, None),
    ("workspace_buffer", {"workspace_buffer": torch.zeros(0, dtype=torch.uint8)}, None),
    ("multi_ctas_kv_counter_buffer", {"multi_ctas_kv_counter_buffer": torch.zeros(543, dtype=torch.uint8)}, None),
    ("multi_ctas_kv_counter_buffer", {"multi_ctas_kv_counter_buffer": torch.ones(544, dtype=torch.uint8)}, None),
    ("sinks", {"sinks": torch.zeros(2)}, None),
    ("sinks", {"sinks": torch.zeros(4).half()}, None),
    ("bmm1_scale", {"bmm1_scale": torch.zeros(2)}, None),
    ("bmm2_scale", {"bmm2_scale": torch.tensor(1.0).half()}, None),
    ("out", {"out": torch.zeros(4, 4, 16)}, None),
    ("out", {"out": torch.zeros(4, 4, 8), "out_dtype": torch.float16}, None),
]

DECODE_BREACHES = [
    *SHARED_BREACHES,
    ("max_seq_len", {"max_seq_len": 4}, 1),
    ("query", {"query": torch.zeros(3, 4, 8)}, None),
    ("query", {"q_len_per_req": 1}, None),
    ("q_len_per_req", {"q_len_per_req": None}, None),
    ("q_len_per_req", {"cum_seq_lens_q": ints(0, 2, 4), "max_q_len": 2}, None),
    ("seq_lens", {"query": torch.zeros(8, 4, 8), "q_len_per_req": 4}, 0),
    ("max_q_len", {"q_len_per_req": None, "cum_seq_lens_q": ints(0, 1, 4), "max_q_len": 2}, 1),
    ("cum_seq_lens_q", {"q_len_per_req": None, "cum_seq_lens_q": ints(0, 1, 5), "max_q_len": 4}, None),
    ("cum_seq_lens_q", {"q_len_per_req": None, "cum_seq_lens_q": ints(0, 3, 2), "max_q_len": 4}, 1),
]

CONTEXT_BREACHES = [
    *SHARED_BREACHES,
    ("max_kv_len", {"max_kv_len": 4}, 1),
    ("max_q_len", {"max_q_len": 2}, 1),
    ("seq_lens", {"batch_size": 3}, None),
    ("seq_lens", {"seq_lens": ints(3, 2), "cum_seq_lens_kv": ints(0, 3, 5)}, 1),
    ("cum_seq_lens_q", {"cum_seq_lens_q": torch.tensor([0, 1, 4])}, None),
    ("cum_seq_lens_q", {"cum_seq_lens_q": ints(1, 1, 4)}, None),
    ("cum_seq_lens_q", {"cum_seq_lens_q": ints(0, 4, 1)}, 1),
    ("cum_seq_lens_q", {"cum_seq_lens_q": ints(0, 4)}, None),
    ("cum_seq_lens_q", {"cum_seq_lens_q": ints(0, 1, 5), "max_q_len": 4}, None),
    ("cum_seq_lens_kv", {"cum_seq_lens_kv": ints(0, 3, 7)}, 1),
    ("cum_seq_lens_kv", {"cum_seq_lens_kv": ints(0, 3, 2)}, 1),
    ("cum_seq_lens_kv", {"cum_seq_lens_kv": ints(0, 3)}, None),
    ("window_left", {"window_left": 1, "causal": False}, None),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), DECODE_BREACHES)
def test_a_decode_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused(DECODE, argument, request_at_fault):
        trtllm_batch_decode_with_kv_cache(**decode_call(**changes))


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), CONTEXT_BREACHES)
def test_a_context_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused(CONTEXT, argument, request_at_fault):
        trtllm_batch_context_with_kv_cache(**context_call(**changes))


def test_the_refusal_reads_as_function_argument_request_numbers() -> None:
    with pytest.raises(ContractBreach) as caught:
        trtllm_batch_decode_with_kv_cache(**decode_call(max_seq_len=4))
    assert str(caught.value) == f"{DECODE}: max_seq_len of request 1: 4 does not cover 5 keys"


def test_what_sglang_does_not_use_is_a_gap_and_not_a_breach() -> None:
    with pytest.raises(StandInGap, match="kv_cache_sf"):
        trtllm_batch_decode_with_kv_cache(**decode_call(), kv_cache_sf=(torch.zeros(1), torch.zeros(1)))


def test_in_a_replay_rows_past_the_longest_are_left_out() -> None:
    ragged = {"q_len_per_req": None, "cum_seq_lens_q": ints(0, 1, 4)}
    right = trtllm_batch_decode_with_kv_cache(**decode_call(**ragged, max_q_len=3))
    with replaying():
        out = trtllm_batch_decode_with_kv_cache(**decode_call(**ragged, max_q_len=2))
    assert torch.equal(out[:3], right[:3])
    assert out[3].isnan().all()
