"""The flashinfer stand-ins refuse a call outside of each line of the contract, and name the argument and the request."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import ContractBreach, StandInGap, noted_in
from stubs.kernels.flashinfer_attention import merge_state
from stubs.kernels.flashinfer_decode import BatchDecodeWithPagedKVCacheWrapper as Decode
from stubs.kernels.flashinfer_prefill import BatchPrefillWithPagedKVCacheWrapper as Paged
from stubs.kernels.flashinfer_ragged import BatchPrefillWithRaggedKVCacheWrapper as Ragged
from tests.stubs.breach import refused
from tests.stubs.flashinfer_calls import K, Q, V, decode_plan, drawn, ints, planned, ragged_plan, workspace

PAGED, RAGGED, DECODE = Paged.__name__, Ragged.__name__, Decode.__name__

PLAN_BREACHES = [
    ("qo_indptr", {"qo_indptr": torch.tensor([0, 1, 4])}, None),
    ("qo_indptr", {"qo_indptr": ints(1, 1, 4)}, None),
    ("qo_indptr", {"qo_indptr": ints(0, 4, 1)}, 1),
    ("qo_indptr", {"qo_indptr": ints(0, 4)}, None),
    ("paged_kv_indptr", {"paged_kv_indptr": torch.tensor([0, 2, 5])}, None),
    ("paged_kv_indptr", {"paged_kv_indptr": ints(0, 5, 2)}, 1),
    ("paged_kv_indptr", {"paged_kv_indptr": ints(0, 5)}, None),
    ("paged_kv_indices", {"paged_kv_indices": torch.tensor([5, 1, 2, 7, 3])}, None),
    ("paged_kv_indices", {"paged_kv_indices": ints(5, 1, 2, 7)}, None),
    ("paged_kv_last_page_len", {"paged_kv_last_page_len": torch.tensor([1, 1])}, None),
    ("paged_kv_last_page_len", {"paged_kv_last_page_len": ints(1, 3)}, 1),
    ("paged_kv_last_page_len", {"paged_kv_last_page_len": ints(0, 1)}, 0),
    ("num_qo_heads", {"num_qo_heads": 3}, None),
    ("page_size", {"page_size": 0}, None),
    ("custom_mask", {"custom_mask": torch.ones(17, dtype=torch.bool)}, 1),
    ("custom_mask", {"custom_mask": torch.ones(18)}, None),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), PLAN_BREACHES)
def test_a_plan_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused(f"{PAGED}.plan", argument, request_at_fault):
        planned(**changes)


RUN_BREACHES = [
    ("q", {"q": Q[:3]}, {}, None),
    ("q", {"q": drawn(4, 6, 8)}, {}, None),
    ("q", {"q": drawn(4, 3, 8)}, {}, None),
    ("q", {"q": drawn(4, 4, 7)}, {}, None),
    ("q", {"q": Q.half()}, {}, None),
    ("q", {"q": drawn(4, 8, 4).transpose(1, 2)}, {}, None),
    ("k_cache", {"paged_kv_cache": (K[:, :1], V)}, {}, None),
    ("k_cache", {"paged_kv_cache": (K.half(), V)}, {}, None),
    ("k_cache", {"paged_kv_cache": (drawn(8, 2, 8, 2).transpose(2, 3), V)}, {}, None),
    ("v_cache", {"paged_kv_cache": (K, V[..., :7])}, {}, None),
    ("paged_kv_cache", {"paged_kv_cache": K}, {}, None),
    ("paged_kv_indices", {}, {"paged_kv_indices": ints(5, 1, 2, 8, 3)}, 1),
    ("paged_kv_indices", {}, {"paged_kv_indices": ints(-1, 1, 2, 7, 3)}, 0),
    ("window_left", {"window_left": 1, "causal": True}, {}, 0),
    ("logits_soft_cap", {"logits_soft_cap": 30.0}, {}, None),
    ("logits_soft_cap", {}, {"logits_soft_cap": 30.0}, None),
]


@pytest.mark.parametrize(("argument", "run", "changes", "request_at_fault"), RUN_BREACHES)
def test_a_run_that_the_plan_does_not_cover_is_refused(
    argument: str, run: dict[str, Any], changes: dict[str, Any], request_at_fault: int | None
) -> None:
    wrapper = planned(**changes)
    with refused(PAGED, argument, request_at_fault):
        wrapper.forward(**{"q": Q, "paged_kv_cache": (K, V)} | run)


@pytest.mark.parametrize(
    ("argument", "run"),
    [("window_left", {"window_left": 1}), ("logits_soft_cap", {"logits_soft_cap": 0.5})],
)
def test_a_run_asks_for_what_was_not_planned_and_is_answered_where_the_breach_is_noted(
    argument: str, run: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {"causal": True, "sm_scale": 0.25} | run
    breaches: list[ContractBreach] = []
    with noted_in(breaches):
        out = planned().forward(Q, (K, V), **asked)
    assert [(breach.function, breach.argument) for breach in breaches] == [(PAGED, argument)]
    assert torch.equal(out, planned(**run).forward(Q, (K, V), **asked))
    assert not torch.equal(out, planned().forward(Q, (K, V), causal=True, sm_scale=0.25))


def test_a_window_that_hides_nothing_need_not_be_planned() -> None:
    out = planned().forward(Q, (K, V), causal=True, sm_scale=0.25, window_left=4)
    assert torch.equal(out, planned().forward(Q, (K, V), causal=True, sm_scale=0.25))


def test_a_run_before_any_plan_is_refused() -> None:
    with pytest.raises(ContractBreach) as caught:
        Paged(workspace()).forward(Q, (K, V))
    assert (caught.value.function, caught.value.argument) == (PAGED, "plan")


def test_a_packed_run_before_any_plan_is_refused() -> None:
    with pytest.raises(ContractBreach) as caught:
        Ragged(workspace()).forward(Q, K[:, 0], V[:, 0])
    assert (caught.value.function, caught.value.argument) == (RAGGED, "plan")


RAGGED_BREACHES = [
    ("q", {"q": Q[:3]}),
    ("k", {"k": K.flatten(0, 1)[:5]}),
    ("k", {"k": K.flatten(0, 1)[:6, :, :7]}),
    ("v", {"v": V.flatten(0, 1)[:5]}),
    ("v", {"v": V.flatten(0, 1)[:6].half()}),
    ("window_left", {"window_left": 1, "causal": True}),
    ("logits_soft_cap", {"logits_soft_cap": 30.0}),
]


@pytest.mark.parametrize(("argument", "run"), RAGGED_BREACHES)
def test_a_packed_run_that_the_plan_does_not_cover_is_refused(argument: str, run: dict[str, Any]) -> None:
    wrapper = Ragged(workspace())
    wrapper.plan(**ragged_plan())
    with pytest.raises(ContractBreach) as caught:
        wrapper.forward(**{"q": Q, "k": K.flatten(0, 1)[:6], "v": V.flatten(0, 1)[:6]} | run)
    assert (caught.value.function, caught.value.argument) == (RAGGED, argument)


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("qo_indptr", {"qo_indptr": ints(0, 4, 1)}),
        ("kv_indptr", {"kv_indptr": ints(0, 6, 2)}),
        ("kv_indptr", {"kv_indptr": ints(0, 6)}),
        ("num_qo_heads", {"num_kv_heads": 3}),
    ],
)
def test_a_packed_plan_outside_the_contract_is_refused(argument: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ContractBreach) as caught:
        Ragged(workspace()).plan(**ragged_plan(**changes))
    assert (caught.value.function, caught.value.argument) == (f"{RAGGED}.plan", argument)


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("indptr", {"indptr": ints(0, 5, 2)}),
        ("indices", {"indices": ints(5, 1)}),
        ("last_page_len", {"last_page_len": ints(1, 0)}),
        ("num_qo_heads", {"num_qo_heads": 5}),
        ("fixed_split_size", {"fixed_split_size": 8}),
    ],
)
def test_a_decode_plan_outside_the_contract_is_refused(argument: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ContractBreach) as caught:
        Decode(workspace()).plan(**decode_plan(**changes))
    assert (caught.value.function, caught.value.argument) == (f"{DECODE}.plan", argument)


def test_a_decode_of_more_than_one_row_a_request_is_refused() -> None:
    wrapper = Decode(workspace())
    wrapper.plan(**decode_plan())
    with pytest.raises(ContractBreach) as caught:
        wrapper.forward(Q, (K, V))
    assert (caught.value.function, caught.value.argument) == (DECODE, "q")


PART = torch.zeros(2, 4, 8), torch.zeros(2, 4)


@pytest.mark.parametrize(
    ("argument", "parts"),
    [
        ("v_a", (PART[0][0], PART[1], *PART)),
        ("s_a", (PART[0], PART[1].T, *PART)),
        ("v_b", (*PART, torch.zeros(2, 4, 16), PART[1])),
        ("v_b", (*PART, PART[0].half(), PART[1])),
        ("s_b", (*PART, PART[0], torch.zeros(4, 2).T)),
        ("v_a", (torch.zeros(1, 513, 8), torch.zeros(1, 513), torch.zeros(1, 513, 8), torch.zeros(1, 513))),
    ],
)
def test_a_merge_outside_the_contract_is_refused(argument: str, parts: tuple[Any, ...]) -> None:
    with pytest.raises(ContractBreach) as caught:
        merge_state(*parts)
    assert (caught.value.function, caught.value.argument) == ("merge_state", argument)


def test_the_refusal_reads_as_function_argument_request_numbers() -> None:
    with pytest.raises(ContractBreach) as caught:
        planned(paged_kv_indices=ints(5, 1, 2, 8, 3)).forward(Q, (K, V))
    assert str(caught.value) == f"{PAGED}: paged_kv_indices of request 1: page id 8 at 1, expected 0..7"


@pytest.mark.parametrize("options", [{"pos_encoding_mode": "ALIBI"}, {"prefix_len_ptr": ints(1)}])
def test_what_sglang_does_not_use_is_a_gap_and_not_a_breach(options: dict[str, Any]) -> None:
    with pytest.raises(StandInGap):
        planned(**options)


def test_a_workspace_that_is_no_bytes_is_refused() -> None:
    with pytest.raises(ContractBreach) as caught:
        Paged(torch.zeros(4))
    assert (caught.value.function, caught.value.argument) == (PAGED, "float_workspace_buffer")
