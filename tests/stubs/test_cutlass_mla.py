"""The stand-ins for CUTLASS's decode of latent attention: right numbers, and a refusal for each line of the contract."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import ContractBreach
from stubs.kernels.cutlass_mla import cutlass_mla_decode, cutlass_mla_get_workspace_size
from stubs.reference import attend
from tests.stubs.breach import refused
from tests.stubs.flashinfer_calls import drawn, ints

DECODE = "cutlass_mla_decode"
ROWS = drawn(6, 128, 12, seed=3)  # pages of 128: latent of 8 columns, rotary key of 4
TABLE = torch.tensor([[5, -1], [2, 4]], dtype=torch.int32)
NOPE, ROPE = drawn(2, 4, 8, seed=1), drawn(2, 4, 4, seed=2)


def call(**changes: Any) -> dict[str, Any]:
    """Two requests of 3 and 130 keys; 4 heads."""
    workspace = torch.zeros(cutlass_mla_get_workspace_size(256, 2), dtype=torch.uint8)
    tensors = {"q_nope": NOPE, "q_pe": ROPE, "kv_c_and_k_pe_cache": ROWS, "seq_lens": ints(3, 130)}
    return {**tensors, "page_table": TABLE, "workspace": workspace, "sm_scale": 0.25} | changes


def close(got: Any, wanted: Any) -> bool:
    return bool(torch.allclose(got.double(), wanted, atol=1e-5, rtol=1e-5))


def test_a_row_a_request_sees_all_its_keys() -> None:
    out = cutlass_mla_decode(**call())
    for request, (pages, length) in enumerate((([5], 3), ([2, 4], 130))):
        keys = torch.cat([ROWS[page] for page in pages])[:length, None]
        q = torch.cat([NOPE[request], ROPE[request]], -1)[None]
        assert close(out[request][None], attend(q, keys, keys[..., :8], scale=0.25))


def test_a_larger_batch_takes_more_to_work_in() -> None:
    assert cutlass_mla_get_workspace_size(256, 2) < cutlass_mla_get_workspace_size(256, 3)


BREACHES = [
    ("q_nope", {"q_nope": NOPE[0]}, None),
    ("q_nope", {"q_nope": drawn(2, 129, 8)}, None),
    ("q_nope", {"q_nope": drawn(2, 8, 4).transpose(1, 2)}, None),
    ("q_pe", {"q_pe": drawn(2, 3, 4)}, None),
    ("q_pe", {"q_pe": ROPE[:1]}, None),
    ("q_pe", {"q_pe": ROPE.half()}, None),
    ("kv_c_and_k_pe_cache", {"kv_c_and_k_pe_cache": ROWS[:, None]}, None),
    ("kv_c_and_k_pe_cache", {"kv_c_and_k_pe_cache": drawn(6, 128, 13)}, None),
    ("kv_c_and_k_pe_cache", {"kv_c_and_k_pe_cache": drawn(6, 48, 12)}, None),
    ("kv_c_and_k_pe_cache", {"kv_c_and_k_pe_cache": ROWS.half()}, None),
    ("kv_c_and_k_pe_cache", {"kv_c_and_k_pe_cache": ROWS.to(torch.float8_e4m3fn)}, None),
    ("seq_lens", {"seq_lens": torch.tensor([3, 130])}, None),
    ("seq_lens", {"seq_lens": ints(3)}, None),
    ("seq_lens", {"seq_lens": ints(-3, 130)}, 0),
    ("page_table", {"seq_lens": ints(3, 257)}, 1),
    ("page_table", {"kv_c_and_k_pe_cache": drawn(12, 64, 12), "page_table": ints(*[0] * 6).view(2, 3)}, None),
    ("block_tables", {"page_table": TABLE.long()}, None),
    ("block_tables", {"page_table": TABLE[:1]}, None),
    ("block_tables", {"page_table": torch.tensor([[5, 0], [2, -1]], dtype=torch.int32)}, 1),
    ("block_tables", {"kv_c_and_k_pe_cache": ROWS[:5]}, 0),
    ("workspace", {"workspace": torch.zeros(8, dtype=torch.uint8)}, None),
    ("workspace_buffer", {"workspace": torch.zeros(4096)}, None),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), BREACHES)
def test_a_decode_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused(DECODE, argument, request_at_fault):
        cutlass_mla_decode(**call(**changes))


@pytest.mark.parametrize(("argument", "sizes"), [("max_seq_len", (0, 2)), ("num_batches", (256, 0))])
def test_there_is_no_room_for_nothing(argument: str, sizes: tuple[int, int]) -> None:
    with pytest.raises(ContractBreach, match=f"cutlass_mla_get_workspace_size: {argument}: is 0"):
        cutlass_mla_get_workspace_size(*sizes)
