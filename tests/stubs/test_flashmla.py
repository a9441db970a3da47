"""The FlashMLA stand-ins: its schedule, right numbers, and a refusal for each line of the contract."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import StandInGap
from stubs.kernels.flashmla import FlashMLASchedMeta, flash_mla_with_kvcache, get_mla_metadata
from stubs.kernels.flashmla_contract import schedule_of
from stubs.packages import flash_mla
from stubs.reference import attend
from tests.stubs.breach import refused
from tests.stubs.flashinfer_calls import drawn, ints

DECODE, METADATA = "flash_mla_with_kvcache", "get_mla_metadata"
ROWS = drawn(6, 64, 1, 12, seed=3)  # pages of 64: latent of 8 columns, rotary key of 4
TABLE = torch.tensor([[5, -1], [2, 4]], dtype=torch.int32)
LENGTHS = ints(3, 70)
SCHEDULE, SPLITS = get_mla_metadata(LENGTHS, 8, 1)


def call(**changes: Any) -> dict[str, Any]:
    """Two requests of 3 and 70 keys, with two query rows each; 4 heads."""
    tensors = {"q": drawn(2, 2, 4, 12, seed=1), "k_cache": ROWS, "block_table": TABLE, "cache_seqlens": LENGTHS}
    schedule = {"tile_scheduler_metadata": SCHEDULE, "num_splits": SPLITS}
    return {**tensors, **schedule, "head_dim_v": 8, "softmax_scale": 0.25, "causal": True} | changes


def keys_of(pages: list[int], length: int) -> Any:
    return torch.cat([ROWS[page] for page in pages])[:length]


def close(got: Any, wanted: Any) -> bool:
    return bool(torch.allclose(got.double(), wanted, atol=1e-5, rtol=1e-5))


def test_a_schedule_deals_out_blocks_and_what_beginning_a_request_costs() -> None:
    # Blocks of 1 and 4: (1 + 5 + 4 + 5) over two parts is 8, and 5 more: the first part takes both but 2 of the blocks.
    schedule, splits = schedule_of([3, 200], rows=64 * 66)
    assert schedule == [[0, 0, 1, 128, 0, 0, 0, 0], [1, 128, 1, 200, 1, 0, 0, 0]]
    assert splits == [0, 1, 3]


def test_there_are_as_many_parts_as_groups_of_cores() -> None:
    assert [len(schedule_of([3], rows)[0]) for rows in (1, 64, 65, 10_000)] == [132, 132, 66, 1]


def test_rows_are_the_last_positions_of_their_request() -> None:
    given = call()
    out, _ = flash_mla_with_kvcache(**given)
    assert tuple(out.shape) == (2, 2, 4, 8)
    for request, keys in enumerate((keys_of([5], 3), keys_of([2, 4], 70))):
        assert close(out[request], attend(given["q"][request], keys, keys[..., :8], scale=0.25))


def test_without_a_causal_mask_every_row_sees_all_keys() -> None:
    given, keys = call(causal=False), keys_of([2, 4], 70)
    expected = attend(given["q"][1], keys, keys[..., :8], scale=0.25, mask=torch.ones(2, 70, dtype=torch.bool))
    assert close(flash_mla_with_kvcache(**given)[0][1], expected)


def test_lse_is_natural_a_head_after_the_other() -> None:
    _, lse = flash_mla_with_kvcache(**call(q=torch.zeros(2, 2, 4, 12)))
    assert tuple(lse.shape) == (2, 4, 2)
    assert lse[:, 0].exp().round(decimals=2).tolist() == [[2.0, 3.0], [69.0, 70.0]]


E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
TWO, HALF = torch.tensor([2.0]), torch.tensor([0.5])


def narrow(**changes: Any) -> dict[str, Any]:
    """The same call over rows in fp8: a query is worth twice what it holds, a row half."""
    given = call()
    fp8 = {"q": given["q"].to(E4M3), "k_cache": ROWS.to(E4M3), "descale_q": TWO, "descale_k": HALF}
    return given | fp8 | changes


def test_a_decode_over_fp8_is_of_what_query_and_rows_are_worth() -> None:
    given = narrow()
    out, _ = flash_mla_with_kvcache(**given)
    assert out.dtype == torch.bfloat16
    keys, q = given["k_cache"][5, :3].float() / 2, 2 * given["q"][0].float()
    assert torch.allclose(out[0].double(), attend(q, keys, keys[..., :8], scale=0.25), atol=1e-2, rtol=1e-2)


def test_a_schedule_for_fp8_deals_out_the_same_blocks() -> None:
    schedule, splits = get_mla_metadata(LENGTHS, 8, 1, is_fp8_kvcache=True)
    assert torch.equal(schedule, SCHEDULE)
    assert torch.equal(splits, SPLITS)


def test_the_wheel_says_of_fp8_that_it_is() -> None:
    out, _ = flash_mla_with_kvcache(**narrow(is_fp8_kvcache=True))
    assert torch.equal(out, flash_mla_with_kvcache(**narrow())[0])


FP8_BREACHES = [
    ("descale_q", {"descale_q": None}),
    ("descale_k", {"descale_k": None}),
    ("descale_q", {"descale_q": torch.tensor(2.0)}),
    ("descale_k", {"descale_k": torch.ones(1, dtype=torch.bfloat16)}),
    ("descale_q", {"q": call()["q"], "k_cache": ROWS}),
    ("k_cache", {"k_cache": ROWS.to(E5M2)}),
    ("k_cache", {"q": call()["q"].bfloat16()}),
    ("q", {"q": call()["q"].to(E5M2), "k_cache": ROWS.to(E5M2)}),
]


@pytest.mark.parametrize(("argument", "changes"), FP8_BREACHES)
def test_a_decode_over_fp8_outside_the_contract_is_refused(argument: str, changes: dict[str, Any]) -> None:
    with refused(DECODE, argument):
        flash_mla_with_kvcache(**narrow(**changes))


def test_the_table_is_walked_by_its_stride_however_narrow_the_view() -> None:
    assert torch.equal(flash_mla_with_kvcache(**call(block_table=TABLE[:, :1]))[0], flash_mla_with_kvcache(**call())[0])


def test_a_padded_row_of_one_key_and_two_queries_is_let_pass() -> None:
    lengths = ints(1, 70)
    schedule, splits = get_mla_metadata(lengths, 8, 1)
    changed = {"cache_seqlens": lengths, "tile_scheduler_metadata": schedule, "num_splits": splits}
    assert float(flash_mla_with_kvcache(**call(**changed))[0][0, 0].abs().max()) == 0.0


def test_the_wheel_says_the_same_in_its_own_words() -> None:
    schedule, splits = flash_mla.get_mla_decoding_metadata(LENGTHS, 8, 1, use_legacy=True)
    kept = FlashMLASchedMeta(schedule, splits)
    out, _ = flash_mla_with_kvcache(**call(tile_scheduler_metadata=kept, num_splits=None))
    assert torch.equal(out, flash_mla_with_kvcache(**call())[0])
    assert flash_mla.get_mla_metadata() == (FlashMLASchedMeta(), None)


METADATA_BREACHES = [
    ("cache_seqlens", {"cache_seqlens": torch.tensor([3, 70])}, None),
    ("cache_seqlens", {"cache_seqlens": ints(3, 0, 70, 0)[::2]}, None),
    ("cache_seqlens", {"cache_seqlens": ints(3, 70)[None]}, None),
    ("cache_seqlens", {"cache_seqlens": ints(3, -1)}, 1),
    ("num_heads_k", {"num_heads_k": 2}, None),
    ("num_q_tokens_per_head_k", {"num_q_tokens_per_head_k": 0}, None),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), METADATA_BREACHES)
def test_a_schedule_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused(METADATA, argument, request_at_fault):
        get_mla_metadata(**{"cache_seqlens": LENGTHS, "num_q_tokens_per_head_k": 8, "num_heads_k": 1} | changes)


BREACHES = [
    ("q", {"q": drawn(2, 4, 12)}, None),
    ("q", {"q": drawn(2, 2, 12, 4).transpose(2, 3)}, None),
    ("k_cache", {"k_cache": drawn(6, 64, 12)}, None),
    ("k_cache", {"k_cache": drawn(6, 64, 2, 12)}, None),
    ("k_cache", {"k_cache": drawn(6, 64, 1, 13)}, None),
    ("k_cache", {"k_cache": drawn(6, 32, 1, 12)}, None),
    ("k_cache", {"k_cache": ROWS.half()}, None),
    ("k_cache", {"k_cache": drawn(6, 12, 1, 64).transpose(1, 3)}, None),
    ("head_dim_v", {"head_dim_v": 13}, None),
    ("cache_seqlens", {"cache_seqlens": LENGTHS.long()}, None),
    ("cache_seqlens", {"cache_seqlens": ints(3)}, None),
    ("cache_seqlens", {"q": drawn(2, 4, 4, 12)}, 0),
    ("tile_scheduler_metadata", {"tile_scheduler_metadata": SCHEDULE.long()}, None),
    ("tile_scheduler_metadata", {"tile_scheduler_metadata": SCHEDULE.T.contiguous().T}, None),
    ("tile_scheduler_metadata", {"tile_scheduler_metadata": SCHEDULE[:66]}, None),
    ("tile_scheduler_metadata", {"tile_scheduler_metadata": torch.zeros_like(SCHEDULE)}, None),
    ("tile_scheduler_metadata", {"tile_scheduler_metadata": FlashMLASchedMeta()}, None),
    ("num_splits", {"num_splits": None}, None),
    ("num_splits", {"num_splits": SPLITS.long()}, None),
    ("num_splits", {"num_splits": SPLITS[:2]}, None),
    ("num_splits", {"num_splits": ints(0, 1, 9)}, 1),
    ("block_table", {"block_table": TABLE.long()}, None),
    ("block_table", {"block_table": TABLE[:1]}, None),
    ("block_table", {"block_table": TABLE.T.contiguous().T}, None),
    ("block_table", {"block_table": TABLE[:, :1].contiguous()}, 1),
    ("block_table", {"block_table": torch.tensor([[5, 0], [2, -1]], dtype=torch.int32)}, 1),
    ("block_table", {"k_cache": ROWS[:5]}, 0),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), BREACHES)
def test_a_decode_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused(DECODE, argument, request_at_fault):
        flash_mla_with_kvcache(**call(**changes))


def test_what_sglang_uses_for_sparse_kv_is_not_there() -> None:
    with pytest.raises(StandInGap, match="indices"):
        flash_mla_with_kvcache(**call(indices=ints(0)))
    with pytest.raises(StandInGap, match="is_fp8_kvcache"):
        flash_mla_with_kvcache(**call(is_fp8_kvcache=True))
    with pytest.raises(StandInGap, match="topk"):
        get_mla_metadata(LENGTHS, 8, 1, topk=4)
