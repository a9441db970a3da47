"""The flashinfer stand-ins in graph mode: bound buffers, plans that take effect at the next launch, host and device."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import ContractBreach
from stubs.kernels.door import replaying
from stubs.kernels.flashinfer_decode import BatchDecodeWithPagedKVCacheWrapper as Decode
from stubs.kernels.flashinfer_decode import fast_decode_plan
from stubs.kernels.flashinfer_plan import pack_mask
from stubs.kernels.flashinfer_prefill import BatchPrefillWithPagedKVCacheWrapper as Paged
from stubs.reference import attend
from tests.stubs.flashinfer_calls import K, Q, V, decode_plan, ints, keys_of, plan, workspace

MASK = torch.tensor([1, 0, 1, *[1, 0, 0, 0, 1], *[0, 1, 1, 1, 1], *[1, 1, 1, 1, 0]], dtype=torch.bool)


def bound(**changes: Any) -> Paged:
    """A prefill wrapper for two requests, with room for six page ids."""
    buffers = {"qo_indptr_buf": torch.zeros(3, dtype=torch.int32), "paged_kv_indptr_buf": ints(0, 0, 0)}
    buffers |= {"paged_kv_indices_buf": torch.zeros(6, dtype=torch.int32), "paged_kv_last_page_len_buf": ints(1, 1)}
    return Paged(workspace(), use_cuda_graph=True, **{**buffers, **changes})


def bound_decode() -> Decode:
    buffers = {"paged_kv_indptr_buffer": ints(0, 0, 0), "paged_kv_last_page_len_buffer": ints(1, 1)}
    indices = torch.zeros(6, dtype=torch.int32)
    return Decode(workspace(), use_cuda_graph=True, use_tensor_cores=True, paged_kv_indices_buffer=indices, **buffers)


def close(got: Any, wanted: Any) -> bool:
    return bool(torch.allclose(got.double(), wanted, atol=1e-5, rtol=1e-5))


def masked() -> Paged:
    return bound(custom_mask_buf=torch.zeros(4, dtype=torch.uint8), mask_indptr_buf=torch.zeros(3, dtype=torch.int32))


def test_a_plan_fills_the_bound_buffers() -> None:
    indices = torch.zeros(6, dtype=torch.int32)
    bound(paged_kv_indices_buf=indices).plan(**plan())
    assert indices.tolist() == [5, 1, 2, 7, 3, 0]


def test_a_run_reads_what_the_buffers_hold_then() -> None:
    indices = torch.zeros(6, dtype=torch.int32)
    wrapper = bound(paged_kv_indices_buf=indices)
    wrapper.plan(**plan(paged_kv_indices=ints(0, 0, 0, 0, 0)))
    indices[:5] = ints(5, 1, 2, 7, 3)
    out = wrapper.forward(Q, (K, V), causal=True, sm_scale=0.25)
    assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25))


def test_a_mask_is_packed_a_bit_a_cell_each_request_from_a_byte_of_its_own() -> None:
    packed, starts = pack_mask(MASK, [1, 3], [3, 5])
    # 1 0 1, lowest bit first; then 10001 01111 11110 over two bytes.
    assert packed.tolist() == [0b101, 0b11010001, 0b00111111]
    assert starts.tolist() == [0, 1, 3]


def test_a_bound_mask_says_what_each_row_sees() -> None:
    wrapper = masked()
    wrapper.plan(**plan(custom_mask=MASK))
    out = wrapper.forward(Q, (K, V), causal=True, sm_scale=0.25)
    assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25, mask=MASK[3:].view(3, 5)))


def test_a_bound_mask_that_a_plan_leaves_out_is_read_as_it_was() -> None:
    wrapper = masked()
    wrapper.plan(**plan(custom_mask=MASK))
    wrapper.plan(**plan())
    out = wrapper.forward(Q, (K, V), causal=True, sm_scale=0.25)
    assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25, mask=MASK[3:].view(3, 5)))


def test_a_plan_from_host_arrays_takes_effect() -> None:
    wrapper = bound()
    wrapper.plan(**plan(paged_kv_indptr=ints(0, 1, 3), paged_kv_indices=ints(0, 0, 0)))
    kernel, memory = wrapper._cached_module, workspace()
    assert kernel is not None
    assert wrapper._qo_indptr_buf is not None
    assert wrapper._paged_kv_indptr_buf is not None
    assert wrapper._paged_kv_indices_buf is not None
    wrapper._paged_kv_indptr_buf.copy_(ints(0, 2, 5))
    wrapper._paged_kv_indices_buf[:5] = ints(5, 1, 2, 7, 3)
    kernel.plan(memory, memory, memory, ints(0, 1, 4), ints(0, 2, 5), ints(3, 5), 4, 2)
    out = wrapper.forward(Q, (K, V), causal=True, sm_scale=0.25)
    assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25))


@pytest.mark.parametrize(
    ("argument", "arrays", "request_at_fault"),
    [
        ("qo_indptr_host", (ints(0, 4, 1), ints(0, 2, 5), ints(3, 5)), 1),
        ("kv_indptr_host", (ints(0, 1, 4), ints(0, 5), ints(3, 5)), None),
        ("kv_lens_host", (ints(0, 1, 4), ints(0, 2, 5), torch.tensor([3, 5])), None),
        ("kv_lens_host", (ints(0, 1, 4), ints(0, 2, 5), ints(3)), None),
        ("kv_lens_host", (ints(0, 1, 4), ints(0, 2, 5), ints(3, 7)), 1),
        ("qo_indptr_host", (ints(0, 1, 5), ints(0, 2, 5), ints(3, 5)), None),
    ],
)
def test_host_arrays_outside_the_contract_are_refused(
    argument: str, arrays: tuple[Any, ...], request_at_fault: int | None
) -> None:
    wrapper, memory = bound(), workspace()
    wrapper.plan(**plan())
    assert wrapper._cached_module is not None
    with pytest.raises(ContractBreach) as caught:
        wrapper._cached_module.plan(memory, memory, memory, *arrays, 4, 2)
    assert (caught.value.argument, caught.value.request) == (argument, request_at_fault)


@pytest.mark.parametrize(
    ("argument", "buffer", "values"),
    [
        ("qo_indptr", "_qo_indptr_buf", ints(0, 2, 4)),
        ("paged_kv_indptr", "_paged_kv_indptr_buf", ints(0, 1, 5)),
        ("paged_kv_last_page_len", "_paged_kv_last_page_len_buf", ints(2, 1)),
    ],
)
def test_a_launch_whose_device_arrays_are_not_what_was_planned_is_refused(
    argument: str, buffer: str, values: Any
) -> None:
    wrapper = bound()
    wrapper.plan(**plan())
    getattr(wrapper, buffer).copy_(values)
    with pytest.raises(ContractBreach) as caught:
        wrapper.forward(Q, (K, V), causal=True)
    assert caught.value.argument == argument


def test_a_request_planned_with_one_key_has_what_the_device_says() -> None:
    """What SGLang pads the batch of a graph with: the host counts one key, the device as many as the draft has, too."""
    wrapper, memory = bound(), workspace()
    wrapper.plan(**plan())
    assert wrapper._cached_module is not None
    for pages in ((0, 1, 4), (0, 0, 3)):  # before another request, whose pages come later on the device
        wrapper._cached_module.plan(memory, memory, memory, ints(0, 1, 4), ints(*pages), ints(1, 5), 4, 2)
        out = wrapper.forward(Q, (K, V), causal=True, sm_scale=0.25)
        assert close(out[:1], attend(Q[:1], *keys_of(0), scale=0.25))
        assert close(out[1:], attend(Q[1:], *keys_of(1), scale=0.25))
    wrapper._cached_module.plan(memory, memory, memory, ints(0, 1, 4), ints(0, 1, 4), ints(2, 5), 4, 2)
    with pytest.raises(ContractBreach, match="paged_kv_indptr of request 0: is 2 at 1 on the device, 1 was planned"):
        wrapper.forward(Q, (K, V), causal=True, sm_scale=0.25)


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        (
            "paged_kv_last_page_len",
            {"qo_indptr": ints(0, 4), "paged_kv_indptr": ints(0, 2), "paged_kv_last_page_len": ints(1)},
        ),
        ("paged_kv_indices", {"paged_kv_indices": ints(5, 1, 2, 7, 3, 0, 0)}),
        ("qo_indptr", {"qo_indptr": ints(0, 1, 5)}),
        ("custom_mask_buf", {"custom_mask": MASK}),
    ],
)
def test_a_plan_that_the_graph_has_no_room_for_is_refused(argument: str, changes: dict[str, Any]) -> None:
    wrapper = bound()
    wrapper.plan(**plan())
    with pytest.raises(ContractBreach) as caught:
        wrapper.plan(**plan(**changes))
    assert caught.value.argument == argument


def test_a_packed_mask_longer_than_its_buffer_is_refused() -> None:
    starts = torch.zeros(3, dtype=torch.int32)
    wrapper = bound(custom_mask_buf=torch.zeros(2, dtype=torch.uint8), mask_indptr_buf=starts)
    with pytest.raises(ContractBreach, match="custom_mask_buf: has room for 2 entries, the mask takes 3"):
        wrapper.plan(**plan(custom_mask=MASK))


def test_a_mask_whose_first_byte_lies_behind_its_buffer_is_refused() -> None:
    starts = torch.zeros(3, dtype=torch.int32)
    wrapper = bound(custom_mask_buf=torch.zeros(3, dtype=torch.uint8), mask_indptr_buf=starts)
    wrapper.plan(**plan(custom_mask=MASK))
    starts.copy_(ints(0, 2, 4))
    with pytest.raises(ContractBreach) as caught:
        wrapper.forward(Q, (K, V))
    assert (caught.value.argument, caught.value.request) == ("mask_indptr", 1)


def test_without_a_buffer_a_graph_is_refused() -> None:
    with pytest.raises(ContractBreach, match="paged_kv_indices_buf: is no tensor in graph mode"):
        bound(paged_kv_indices_buf=None)


def test_a_fast_plan_takes_the_hosts_word_and_what_the_buffers_hold() -> None:
    wrapper = bound_decode()
    wrapper.plan(**decode_plan(indptr=ints(0, 1, 2), indices=ints(0, 0)))
    assert wrapper._paged_kv_indptr_buf is not None
    assert wrapper._paged_kv_indices_buf is not None
    wrapper._paged_kv_indptr_buf.copy_(ints(0, 2, 5))
    wrapper._paged_kv_indices_buf[:5] = ints(5, 1, 2, 7, 3)
    fast_decode_plan(wrapper, **decode_plan(), global_override_indptr_cpu=ints(0, 2, 5))
    out = wrapper.forward(Q[:2], (K, V), sm_scale=0.25)
    assert close(out[1:], attend(Q[1:2], *keys_of(1), scale=0.25))


def test_a_fast_plan_whose_host_indptr_is_not_the_devices_is_found_at_the_launch() -> None:
    wrapper = bound_decode()
    wrapper.plan(**decode_plan())
    fast_decode_plan(wrapper, **decode_plan(), global_override_indptr_cpu=ints(0, 2, 4))
    with pytest.raises(ContractBreach, match="paged_kv_indptr of request 1: is 5 at 2 on the device, 4 was planned"):
        wrapper.forward(Q[:2], (K, V))


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("global_override_indptr_cpu", {"global_override_indptr_cpu": ints(0, 5, 2)}),
        ("q_len_per_req", {"q_len_per_req": 2}),
    ],
)
def test_a_fast_plan_outside_the_contract_is_refused(argument: str, changes: dict[str, Any]) -> None:
    wrapper = bound_decode()
    wrapper.plan(**decode_plan())
    with pytest.raises(ContractBreach) as caught:
        fast_decode_plan(wrapper, **decode_plan(), **changes)
    assert (caught.value.function, caught.value.argument) == ("fast_decode_plan", argument)


def test_a_fast_plan_before_any_other_is_refused() -> None:
    with pytest.raises(ContractBreach, match="fast_decode_plan: plan: there was none before it"):
        fast_decode_plan(bound_decode(), **decode_plan())


def test_a_replay_may_have_more_rows_than_were_planned_since_and_leaves_them_unwritten() -> None:
    wrapper = bound()
    wrapper.plan(**plan())
    with replaying():
        out = wrapper.forward(torch.cat([Q, Q]), (K, V), causal=True, sm_scale=0.25)
    assert close(out[1 : len(Q)], attend(Q[1:], *keys_of(1), scale=0.25))
    assert bool(out[len(Q) :].isnan().all())


def test_a_replay_has_no_fewer_rows_than_were_planned() -> None:
    wrapper = bound()
    wrapper.plan(**plan())
    with replaying(), pytest.raises(ContractBreach, match="q: has 2 rows, qo_indptr ends at 4"):
        wrapper.forward(Q[:2], (K, V), causal=True, sm_scale=0.25)


def test_out_of_a_replay_rows_are_as_many_as_were_planned() -> None:
    wrapper = bound()
    wrapper.plan(**plan())
    with pytest.raises(ContractBreach, match="q: has 8 rows, qo_indptr ends at 4"):
        wrapper.forward(torch.cat([Q, Q]), (K, V), causal=True, sm_scale=0.25)
