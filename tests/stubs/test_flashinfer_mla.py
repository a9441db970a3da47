"""The stand-in for flashinfer's latent attention: right numbers, and a refusal for each line of its contract."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import ContractBreach, StandInGap
from stubs.kernels.flashinfer_mla import BatchMLAPagedAttentionWrapper as Wrapper
from stubs.reference import attend
from tests.stubs.breach import refused
from tests.stubs.flashinfer_calls import drawn, ints, workspace

PLAN, RUN = "BatchMLAPagedAttentionWrapper.plan", "BatchMLAPagedAttentionWrapper.run"
NOPE, ROPE = drawn(4, 4, 8, seed=1), drawn(4, 4, 4, seed=2)
ROWS = drawn(8, 2, 12, seed=3)  # pages of 2: latent of 8 columns, rotary key of 4
PAGES = {0: [5, 1], 1: [2, 7, 3]}
LENGTHS = {0: 3, 1: 5}


def plan(**changes: Any) -> dict[str, Any]:
    """Two requests of 3 and 5 keys, with 1 and 3 query rows; 4 heads."""
    arrays = {"qo_indptr": ints(0, 1, 4), "kv_indptr": ints(0, 2, 5), "kv_indices": ints(5, 1, 2, 7, 3)}
    dims = {"num_heads": 4, "head_dim_ckv": 8, "head_dim_kpe": 4, "page_size": 2, "causal": True, "sm_scale": 0.25}
    dtypes = {"q_data_type": torch.float32, "kv_data_type": torch.float32}
    return {**arrays, "kv_len_arr": ints(3, 5), **dims, **dtypes} | changes


def launch(**changes: Any) -> dict[str, Any]:
    return {"q_nope": NOPE, "q_pe": ROPE, "ckv_cache": ROWS[..., :8], "kpe_cache": ROWS[..., 8:]} | changes


def planned(**changes: Any) -> Wrapper:
    wrapper = Wrapper(workspace())
    wrapper.plan(**plan(**changes))
    return wrapper


def bound(**changes: Any) -> Wrapper:
    """A wrapper for two requests, with room for six page ids."""
    buffers = {"qo_indptr": ints(0, 0, 0), "kv_indptr": ints(0, 0, 0), "kv_indices": ints(0, 0, 0, 0, 0, 0)}
    return Wrapper(workspace(), use_cuda_graph=True, **{**buffers, "kv_len_arr": ints(0, 0), **changes})


def expected(request: int, rows: slice, **rules: Any) -> Any:
    """Absorbed attention in float64: the row is the key, its first 8 columns are the value."""
    keys = torch.cat([ROWS[page] for page in PAGES[request]])[: LENGTHS[request], None]
    return attend(torch.cat([NOPE[rows], ROPE[rows]], -1), keys, keys[..., :8], scale=0.25, **rules)


def close(got: Any, wanted: Any) -> bool:
    return bool(torch.allclose(got.double(), wanted, atol=1e-5, rtol=1e-5))


def test_rows_are_the_last_positions_of_their_request() -> None:
    out = planned().run(**launch())
    assert close(out[:1], expected(0, slice(0, 1)))
    assert close(out[1:], expected(1, slice(1, 4)))


def test_without_a_causal_mask_every_row_sees_all_keys() -> None:
    out = planned(causal=False).run(**launch())
    assert close(out[1:], expected(1, slice(1, 4), mask=torch.ones(3, 5, dtype=torch.bool)))


def test_the_answer_goes_to_the_output_that_is_given() -> None:
    out = torch.zeros(4, 4, 8)
    assert planned().run(**launch(out=out)) is out
    assert close(out[1:], expected(1, slice(1, 4)))


def test_lse_is_in_base_two() -> None:
    wrapper = planned(qo_indptr=ints(0, 1), kv_indptr=ints(0, 1), kv_indices=ints(5), kv_len_arr=ints(2))
    zero = torch.zeros(1, 4, 8), torch.zeros(1, 4, 4)
    _, lse = wrapper.run(**launch(q_nope=zero[0], q_pe=zero[1]), return_lse=True)
    assert lse.tolist() == [[1.0, 1.0, 1.0, 1.0]]  # of two equal keys


def test_a_request_without_keys_and_rows_is_let_pass() -> None:
    arrays = {"qo_indptr": ints(0, 0, 3), "kv_indptr": ints(0, 0, 3), "kv_indices": ints(2, 7, 3)}
    out = planned(**arrays, kv_len_arr=ints(0, 5)).run(**launch(q_nope=NOPE[1:], q_pe=ROPE[1:]))
    assert close(out, expected(1, slice(1, 4)))


def test_a_plan_fills_the_bound_buffers() -> None:
    indices, lengths = ints(0, 0, 0, 0, 0, 9), ints(0, 0)
    bound(kv_indices=indices, kv_len_arr=lengths).plan(**plan())
    assert (indices.tolist(), lengths.tolist()) == ([5, 1, 2, 7, 3, 9], [3, 5])


def test_a_run_reads_the_ids_that_the_buffer_holds_then() -> None:
    indices = ints(0, 0, 0, 0, 0, 0)
    wrapper = bound(kv_indices=indices)
    wrapper.plan(**plan(kv_indices=ints(0, 0, 0, 0, 0)))
    indices[:5] = ints(5, 1, 2, 7, 3)
    assert close(wrapper.run(**launch())[1:], expected(1, slice(1, 4)))


def test_a_plan_from_host_arrays_takes_effect() -> None:
    wrapper = bound()
    wrapper.plan(**plan(kv_indptr=ints(0, 1, 3), kv_indices=ints(5, 1, 2), kv_len_arr=ints(2, 4)))
    assert wrapper._cached_module is not None
    assert wrapper._kv_indices_buf is not None
    wrapper._kv_indices_buf[:5] = ints(5, 1, 2, 7, 3)
    memory = workspace()
    wrapper._cached_module.plan(memory, memory, memory, ints(0, 1, 4), ints(0, 2, 5), ints(3, 5), 4, 8, True)
    assert close(wrapper.run(**launch())[1:], expected(1, slice(1, 4)))


BOUND_BREACHES = [
    ("qo_indptr", {"qo_indptr": None}),
    ("kv_indptr", {"kv_indptr": torch.zeros(3, dtype=torch.int64)}),
    ("kv_indices", {"kv_indices": None}),
    ("kv_len_arr", {"kv_len_arr": torch.zeros(2, dtype=torch.int64)}),
    ("qo_indptr", {"qo_indptr": ints(0, 0)}),
    ("kv_indptr", {"kv_indptr": ints(0, 0, 0, 0)}),
]


@pytest.mark.parametrize(("argument", "changes"), BOUND_BREACHES)
def test_buffers_that_no_graph_can_read_are_refused(argument: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ContractBreach) as caught:
        bound(**changes)
    assert (caught.value.function, caught.value.argument) == ("BatchMLAPagedAttentionWrapper", argument)


def test_a_workspace_is_made_of_bytes() -> None:
    with pytest.raises(ContractBreach, match="float_workspace_buffer: is torch.float32, expected uint8 or int8"):
        Wrapper(torch.zeros(4))


PLAN_BREACHES = [
    ("qo_indptr", {"qo_indptr": torch.tensor([0, 1, 4])}, None),
    ("qo_indptr", {"qo_indptr": ints(1, 1, 4)}, None),
    ("qo_indptr", {"qo_indptr": ints(0, 4, 1)}, 1),
    ("qo_indptr", {"qo_indptr": ints(0, 4)}, None),
    ("kv_indptr", {"kv_indptr": torch.tensor([0, 2, 5])}, None),
    ("kv_indptr", {"kv_indptr": ints(0, 6, 5)}, 1),
    ("kv_indptr", {"kv_indptr": ints(0, 5)}, None),
    ("kv_indices", {"kv_indices": torch.tensor([5, 1, 2, 7, 3])}, None),
    ("kv_indices", {"kv_indices": ints(5, 1, 2, 7)}, None),
    ("kv_indices", {"kv_indices": ints(5, 1, 2, 7, 3)[None]}, None),
    ("kv_len_arr", {"kv_len_arr": torch.tensor([3, 5])}, None),
    ("kv_len_arr", {"kv_len_arr": ints(3, 7)}, 1),
    ("kv_len_arr", {"kv_len_arr": ints(5, 5)}, 0),
    ("num_heads", {"num_heads": 0}, None),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), PLAN_BREACHES)
def test_a_plan_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused(PLAN, argument, request_at_fault):
        planned(**changes)


def test_more_queries_than_keys_are_planned_and_the_first_of_them_see_nothing() -> None:
    """As a graph's padding is, which the host knows by a length of 1; the plan's own code refuses no such row."""
    out = planned(kv_indptr=ints(0, 2, 3), kv_indices=ints(5, 1, 2), kv_len_arr=ints(3, 1)).run(**launch())
    first = ROWS[2, :1, None]
    assert close(out[3:], attend(torch.cat([NOPE[3:], ROPE[3:]], -1), first, first[..., :8], scale=0.25))
    assert not out[1:3].any()


def test_a_graphs_plan_has_as_many_requests_as_it_was_bound_for() -> None:
    with pytest.raises(ContractBreach, match="kv_len_arr: has 1 entries, the graph's buffers are for 2"):
        bound().plan(**plan(qo_indptr=ints(0, 1), kv_indptr=ints(0, 2), kv_len_arr=ints(3)))


def test_a_graphs_ids_fit_into_their_buffer() -> None:
    with pytest.raises(ContractBreach, match="kv_indices: has 5 entries, its buffer 4"):
        bound(kv_indices=ints(0, 0, 0, 0)).plan(**plan())


def test_a_kernel_is_planned_for_its_own_latent_alone() -> None:
    wrapper, memory = planned(), workspace()
    assert wrapper._cached_module is not None
    with pytest.raises(ContractBreach, match="head_dim_ckv: is 16, the kernel is for 8"):
        wrapper._cached_module.plan(memory, memory, memory, ints(0, 1, 4), ints(0, 2, 5), ints(3, 5), 4, 16, True)


RUN_BREACHES = [
    ("q_nope", {"q_nope": NOPE[:3]}, None),
    ("q_nope", {"q_nope": drawn(4, 2, 8)}, None),
    ("q_nope", {"q_nope": drawn(4, 4, 7)}, None),
    ("q_nope", {"q_nope": NOPE.half()}, None),
    ("q_nope", {"q_nope": drawn(4, 8, 4).transpose(1, 2)}, None),
    ("q_pe", {"q_pe": ROPE[:3]}, None),
    ("q_pe", {"q_pe": drawn(4, 4, 3)}, None),
    ("q_pe", {"q_pe": ROPE.half()}, None),
    ("ckv_cache", {"ckv_cache": ROWS[..., :7]}, None),
    ("ckv_cache", {"ckv_cache": ROWS[:, :1, :8]}, None),
    ("ckv_cache", {"ckv_cache": ROWS[..., :8].half()}, None),
    ("ckv_cache", {"ckv_cache": drawn(8, 8, 2).transpose(1, 2)}, None),
    ("kpe_cache", {"kpe_cache": ROWS[..., 9:]}, None),
    ("kv_indices", {"ckv_cache": ROWS[:7, :, :8]}, 1),
    ("out", {"out": torch.zeros(3, 4, 8)}, None),
    ("out", {"out": torch.zeros(4, 4, 8, dtype=torch.float16)}, None),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), RUN_BREACHES)
def test_a_run_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused(RUN, argument, request_at_fault):
        planned().run(**launch(**changes))


def test_a_run_comes_after_a_plan() -> None:
    with pytest.raises(ContractBreach, match="plan: run came before it"):
        Wrapper(workspace()).run(**launch())


def test_what_sglang_does_not_use_is_not_there() -> None:
    with pytest.raises(StandInGap, match="page_table"):
        planned().run(**launch(page_table=ints(0)))
