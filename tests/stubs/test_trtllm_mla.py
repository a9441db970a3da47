"""The TensorRT-LLM stand-ins for latent attention: right numbers, and a refusal for each line of the contract."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import StandInGap
from stubs.kernels.trtllm_mla import trtllm_batch_decode_with_kv_cache_mla, trtllm_ragged_attention_deepseek
from stubs.reference import attend
from tests.stubs.breach import refused
from tests.stubs.flashinfer_calls import drawn, ints, workspace

DECODE, RAGGED = "trtllm_batch_decode_with_kv_cache_mla", "trtllm_ragged_attention_deepseek"
ROWS = drawn(6, 32, 12, seed=3)  # pages of 32: latent of 8 columns, rotary key of 4
TABLE = torch.tensor([[5, 0, -1, -1], [2, 4, -1, -1]], dtype=torch.int32)


def decode_call(**changes: Any) -> dict[str, Any]:
    """Two requests of 3 and 35 keys, with two query rows each; 4 heads."""
    widths = {"qk_nope_head_dim": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4}
    lengths = {"block_tables": TABLE, "seq_lens": ints(3, 35), "max_seq_len": 35}
    call = {"query": drawn(2, 2, 4, 12, seed=1), "kv_cache": ROWS[:, None], "workspace_buffer": workspace()}
    return {**call, **widths, **lengths, "bmm1_scale": 0.25} | changes


def ragged_call(**changes: Any) -> dict[str, Any]:
    """Packed queries of 1 and 3 rows over packed keys of 2 and 4; 4 heads of 6, values of 5."""
    packed = {"query": drawn(4, 4, 6, seed=1), "key": drawn(6, 4, 6, seed=2), "value": drawn(6, 4, 5, seed=3)}
    arrays = {"cum_seq_lens_q": ints(0, 1, 4), "cum_seq_lens_kv": ints(0, 2, 6), "seq_lens": ints(2, 4)}
    most = {"max_q_len": 3, "max_kv_len": 4, "batch_size": 2, "window_left": -1}
    scales = {"bmm1_scale": 0.25, "bmm2_scale": 1.0, "o_sf_scale": 1.0}
    flags = {"enable_pdl": False, "is_causal": True, "return_lse": False}
    return {**packed, **arrays, **most, **scales, **flags, "workspace_buffer": workspace()} | changes


def keys_of(pages: list[int], length: int) -> Any:
    return torch.cat([ROWS[page] for page in pages])[:length, None]


def decode(**changes: Any) -> Any:
    return trtllm_batch_decode_with_kv_cache_mla(**decode_call(**changes))


def ragged(**changes: Any) -> Any:
    return trtllm_ragged_attention_deepseek(**ragged_call(**changes))


def close(got: Any, wanted: Any) -> bool:
    return bool(torch.allclose(got.double(), wanted, atol=1e-5, rtol=1e-5))


def test_decode_rows_are_the_last_positions_of_their_request() -> None:
    call, out = decode_call(), decode()
    assert tuple(out.shape) == (2, 2, 4, 8)
    for request, keys in enumerate((keys_of([5], 3), keys_of([2, 4], 35))):
        assert close(out[request], attend(call["query"][request], keys, keys[..., :8], scale=0.25))


def test_a_cache_without_a_dimension_of_heads_says_the_same() -> None:
    assert torch.equal(decode(kv_cache=ROWS), decode())


def test_values_are_scaled_by_the_second_scale() -> None:
    assert close(decode(bmm2_scale=2.0), 2 * decode().double())


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def near(got: Any, wanted: Any) -> bool:
    """As near as bfloat16 is."""
    return bool(torch.allclose(got.double(), wanted, atol=1e-2, rtol=1e-2))


def test_a_decode_over_fp8_is_of_what_the_rounded_rows_hold() -> None:
    query, rows = decode_call()["query"].to(E4M3), ROWS.to(E4M3)
    out = decode(query=query, kv_cache=rows)
    assert out.dtype == torch.bfloat16
    keys = rows[5, :3, None].float()
    assert near(out[0], attend(query[0].float(), keys, keys[..., :8], scale=0.25))


def test_scales_of_fp8_are_the_callers_to_multiply_in() -> None:
    """Of rows that are worth twice what they hold: twice the first scale, and a second one of two."""
    query, rows = decode_call()["query"].to(E4M3), (ROWS / 2).to(E4M3)
    out = decode(query=query, kv_cache=rows, bmm1_scale=0.5, bmm2_scale=2.0)
    keys = 2 * rows[5, :3, None].float()
    assert near(out[0], attend(query[0].float(), keys, keys[..., :8], scale=0.25))


def test_a_ragged_prefill_of_fp8_answers_in_16_bits() -> None:
    narrow = {name: ragged_call()[name].to(E4M3) for name in ("query", "key", "value")}
    query, key, value = (one.float() for one in narrow.values())
    for out in (ragged(**narrow), ragged(**narrow, out=torch.zeros(4, 4, 5, dtype=torch.bfloat16))):
        assert out.dtype == torch.bfloat16
        assert near(out[:1], attend(query[:1], key[:2], value[:2], scale=0.25))
        assert near(out[1:], attend(query[1:], key[2:], value[2:], scale=0.25))


def test_lse_of_a_decode_is_of_base_2_a_row_after_the_other() -> None:
    query = torch.zeros(2, 2, 4, 12)
    _, lse = decode(query=query, return_lse=True)
    assert lse[:, 0].exp2().round(decimals=3).tolist() == [2.0, 3.0, 34.0, 35.0]


def test_lse_of_a_decode_by_cute_dsl_is_natural() -> None:
    query = torch.zeros(2, 2, 4, 12)
    _, lse = decode(query=query, return_lse=True, backend="cute-dsl")
    assert lse[:, 0].exp().round(decimals=3).tolist() == [2.0, 3.0, 34.0, 35.0]


def test_a_padded_row_of_one_key_and_two_queries_is_let_pass() -> None:
    out = decode(seq_lens=ints(1, 35))
    assert float(out[0, 0].abs().max()) == 0.0


def test_ragged_rows_are_the_last_positions_of_their_request() -> None:
    call, out = ragged_call(), ragged()
    assert close(out[:1], attend(call["query"][:1], call["key"][:2], call["value"][:2], scale=0.25))
    assert close(out[1:], attend(call["query"][1:], call["key"][2:], call["value"][2:], scale=0.25))


def test_ragged_rows_without_a_causal_mask_see_all_keys() -> None:
    call = ragged_call()
    mask = torch.ones(3, 4, dtype=torch.bool)
    expected = attend(call["query"][1:], call["key"][2:], call["value"][2:], scale=0.25, mask=mask)
    assert close(ragged(is_causal=False)[1:], expected)


def test_ragged_lse_is_of_base_2() -> None:
    _, lse = ragged(query=torch.zeros(4, 4, 6), return_lse=True)
    assert lse[:, 0].exp2().round(decimals=3).tolist() == [2.0, 2.0, 3.0, 4.0]


def test_rows_of_a_request_without_keys_hold_whatever_the_memory_held() -> None:
    arrays = {"cum_seq_lens_kv": ints(0, 0, 6), "seq_lens": ints(0, 6), "max_kv_len": 6}
    out, lse = ragged(**arrays, is_causal=False, return_lse=True)
    assert bool(out[0].isnan().all())
    assert bool(lse[0].isnan().all())
    assert not bool(out[1:].isnan().any())


DECODE_BREACHES = [
    ("query", {"query": drawn(2, 4, 12)}, None),
    ("query", {"query": drawn(2, 2, 4, 11)}, None),
    ("query", {"query": drawn(2, 2, 12, 4).transpose(2, 3)}, None),
    ("kv_cache", {"kv_cache": drawn(6, 2, 32, 12)}, None),
    ("kv_cache", {"kv_cache": drawn(6, 32)}, None),
    ("kv_cache", {"kv_cache": drawn(6, 16, 12)}, None),
    ("kv_cache", {"kv_cache": drawn(6, 32, 13)}, None),
    ("kv_cache", {"kv_cache": ROWS.half()}, None),
    ("kv_cache", {"kv_cache": drawn(6, 12, 32).transpose(1, 2)}, None),
    ("kv_cache", {"kv_cache": ROWS.to(E4M3)}, None),
    ("kv_cache", {"query": drawn(2, 2, 4, 12).to(E4M3)}, None),
    ("query", {"query": drawn(2, 2, 4, 12).to(E5M2), "kv_cache": ROWS.to(E5M2)}, None),
    ("workspace_buffer", {"workspace_buffer": torch.zeros(4)}, None),
    ("workspace_buffer", {"workspace_buffer": torch.zeros(0, dtype=torch.uint8)}, None),
    ("seq_lens", {"seq_lens": torch.tensor([3, 35])}, None),
    ("seq_lens", {"seq_lens": ints(3)}, None),
    ("seq_lens", {"seq_lens": ints(3, -1)}, 1),
    ("seq_lens", {"query": drawn(2, 4, 4, 12)}, 0),
    ("max_seq_len", {"max_seq_len": 34}, 1),
    ("block_tables", {"block_tables": TABLE.long()}, None),
    ("block_tables", {"block_tables": TABLE[:1]}, None),
    ("block_tables", {"block_tables": TABLE[:, :2]}, None),
    ("block_tables", {"block_tables": TABLE.T.contiguous().T}, None),
    ("block_tables", {"seq_lens": ints(3, 129), "max_seq_len": 129}, 1),
    ("block_tables", {"block_tables": torch.tensor([[5, 0, 0, 0], [2, -1, 0, 0]], dtype=torch.int32)}, 1),
    ("block_tables", {"kv_cache": ROWS[:5]}, 0),
    ("multi_ctas_kv_counter_buffer", {"multi_ctas_kv_counter_buffer": torch.zeros(8, dtype=torch.uint8)}, None),
    ("multi_ctas_kv_counter_buffer", {"multi_ctas_kv_counter_buffer": torch.ones(600, dtype=torch.uint8)}, None),
    ("backend", {"backend": "xqa"}, None),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), DECODE_BREACHES)
def test_a_decode_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused(DECODE, argument, request_at_fault):
        decode(**changes)


RAGGED_BREACHES = [
    ("query", {"query": drawn(3, 4, 6)}, None),
    ("query", {"query": drawn(4, 24)}, None),
    ("query", {"query": drawn(4, 6, 4).transpose(1, 2)}, None),
    ("key", {"key": drawn(5, 4, 6)}, None),
    ("key", {"key": drawn(6, 2, 6)}, None),
    ("key", {"key": drawn(6, 4, 7)}, None),
    ("key", {"key": drawn(6, 4, 6).half()}, None),
    ("value", {"value": drawn(7, 4, 5)}, None),
    ("value", {"value": drawn(6, 2, 5)}, None),
    ("value", {"value": drawn(6, 4, 5).half()}, None),
    ("workspace_buffer", {"workspace_buffer": torch.zeros(4)}, None),
    ("cum_seq_lens_q", {"cum_seq_lens_q": torch.tensor([0, 1, 4])}, None),
    ("cum_seq_lens_q", {"cum_seq_lens_q": ints(0, 4)}, None),
    ("cum_seq_lens_q", {"cum_seq_lens_q": ints(0, 5, 4)}, 1),
    ("cum_seq_lens_kv", {"cum_seq_lens_kv": torch.tensor([0, 2, 6])}, None),
    ("cum_seq_lens_kv", {"cum_seq_lens_kv": ints(1, 2, 6)}, None),
    ("seq_lens", {"seq_lens": ints(2, 5)}, 1),
    ("seq_lens", {"seq_lens": ints(2)}, None),
    ("seq_lens", {"cum_seq_lens_q": ints(0, 3, 4), "cum_seq_lens_kv": ints(0, 2, 6)}, 0),
    ("max_q_len", {"max_q_len": 2}, 1),
    ("max_kv_len", {"max_kv_len": 3}, 1),
    ("out", {"out": torch.zeros(4, 4, 6)}, None),
    ("key", {"query": drawn(4, 4, 6).to(E4M3)}, None),
    ("query", {name: ragged_call()[name].to(E5M2) for name in ("query", "key", "value")}, None),
    (
        "out",
        {**{name: ragged_call()[name].to(E4M3) for name in ("query", "key", "value")}, "out": drawn(4, 4, 5).to(E4M3)},
        None,
    ),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), RAGGED_BREACHES)
def test_a_ragged_prefill_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused(RAGGED, argument, request_at_fault):
        ragged(**changes)


@pytest.mark.parametrize(("name", "value"), [("enable_dcp", True), ("sparse_mla_top_k", 4), ("cp_world", 2)])
def test_what_runs_over_several_gpus_or_sparsely_is_not_there(name: str, value: Any) -> None:
    with pytest.raises(StandInGap, match=name):
        decode(**{name: value})


def test_a_window_is_not_there() -> None:
    with pytest.raises(StandInGap, match="window_left 3"):
        ragged(window_left=3)
