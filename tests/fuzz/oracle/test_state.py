"""The state oracle on a step of two requests: each fault planted alone, beside the step without it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fuzz.oracle.state import (
    batch_sound,
    inputs_unchanged,
    kv_left_to_the_model,
    kv_written_where_told,
    metadata_sound,
    restore_kv,
    serving_leaf,
    tokens_as_given,
)
from fuzz.oracle.view import StepView, Strays
from stubs.world import World
from tests.fuzz.oracle.sound_step import DIM, HEADS, LAYERS, LOC, SLOTS, Case, Leaf, metadata, taps, told

# --- the batch ---------------------------------------------------------------------------------------------------


class Mode:
    def __init__(self, idle: bool) -> None:
        self.idle = idle

    def is_idle(self) -> bool:
        return self.idle


@pytest.mark.parametrize(
    ("counted", "is_idle", "faults"),
    [
        (5, False, []),
        (None, False, []),
        (0, True, []),
        (
            4,
            False,
            [
                (
                    "state/batch_unsound/ForwardBatch.extend_num_tokens.decode",
                    "extend_num_tokens is 4, and extend_seq_lens are [3, 2]",
                )
            ],
        ),
    ],
)
def test_new_tokens_are_counted_once(counted: int | None, is_idle: bool, faults: list[tuple[str, str]]) -> None:
    view = Case().view()
    batch = SimpleNamespace(forward_mode=Mode(is_idle), extend_num_tokens=counted, extend_seq_lens=torch.tensor([3, 2]))
    assert told(batch_sound(replace(view, plan=replace(view.plan, forward_batch=batch)))) == faults


@pytest.mark.parametrize(
    ("given", "taken", "faults"),
    [
        (torch.tensor([7, 9]), torch.tensor([7, 9]), []),
        (torch.tensor([7, 9]), torch.tensor([7, 9], dtype=torch.int32), []),
        (None, torch.tensor([1, 2]), []),
        (torch.tensor([7, 9]), torch.tensor([9, 7]), ["state/wrong_tokens/ForwardBatch.input_ids.decode"]),
        (torch.tensor([7, 9]), torch.tensor([7, 9, 9]), ["state/wrong_tokens/ForwardBatch.input_ids.decode"]),
        (torch.tensor([7, 9]), None, ["state/wrong_tokens/ForwardBatch.input_ids.decode"]),
    ],
)
def test_tokens_taken_to_the_model(given: Any, taken: Any, faults: list[str]) -> None:
    view = Case().view()
    plan = replace(view.plan, forward_batch=SimpleNamespace(input_ids=taken), input_ids=given)
    assert [str(fault.signature) for fault in tokens_as_given(replace(view, plan=plan))] == faults


def test_padding_is_counted_or_not_and_comes_behind_the_tokens() -> None:
    view = Case().view()
    lens, rows = torch.tensor([3, 2, 3]), (view.plan.rows * 2)[:2]

    def of(counted: int, taken: list[int]) -> StepView:
        batch = SimpleNamespace(
            forward_mode=Mode(False), extend_num_tokens=counted, extend_seq_lens=lens, input_ids=torch.tensor(taken)
        )
        plan = replace(view.plan, forward_batch=batch, rows=rows, input_ids=torch.tensor([7, 9]), is_padded=True)
        return replace(view, plan=plan)

    assert [len(batch_sound(of(counted, [7, 9]))) for counted in (8, 5, 6)] == [0, 0, 1]
    assert [len(tokens_as_given(of(8, taken))) for taken in ([7, 9, 0], [7, 9], [7, 0, 9], [7])] == [0, 0, 1, 1]


# --- KV rows -----------------------------------------------------------------------------------------------------


def test_kv_written_where_told_is_no_fault() -> None:
    assert kv_written_where_told(Case().view()) == []


@pytest.mark.parametrize("slot", [0, 1, 4, 6])  # padding, own but committed, nobody's, own but not of this step
def test_row_written_elsewhere_is_a_stray_write(slot: int) -> None:
    case = Case()
    case.pool.v_buffer[1][slot, 0, 1] = 5.0
    assert told(kv_written_where_told(case.view())) == [
        ("state/stray_kv_write/Leaf.forward_decode", f"V of layer 1: rows [{slot}] are not among [5, 2]")
    ]


def test_nan_that_stays_is_no_write_and_one_that_comes_is() -> None:
    case = Case()
    for buffer in (case.kv_before[0], case.pool.k_buffer[0]):
        buffer[4, 0, 0] = float("nan")
    assert kv_written_where_told(case.view()) == []
    case.pool.k_buffer[0][6, 0, 0] = float("nan")
    assert [fault.message for fault in kv_written_where_told(case.view())] == [
        "K of layer 0: rows [6] are not among [5, 2]"
    ]


def test_row_that_was_not_written() -> None:
    case = Case()
    case.pool.k_buffer[0][2] = 1000.0
    assert told(kv_written_where_told(case.view())) == [
        ("state/kv_not_written/Leaf.forward_decode", "K of layer 0: rows [2]")
    ]


def test_rows_swapped_between_requests_are_both_wrong() -> None:
    case = Case()
    view = case.view()
    tap = taps()[0]
    tap.k[1] = 7.0
    case.pool.k_buffer[0][LOC] = tap.k[[1, 0]].view(2, HEADS, DIM)
    assert told(kv_written_where_told(replace(view, taps=[tap]))) == [
        ("state/kv_not_written/Leaf.forward_decode", "K of layer 0: rows [5, 2]")
    ]


@pytest.mark.parametrize(
    ("kind", "access", "faults"),
    [
        ("row_write", "store", []),
        ("storage", "atomic", []),
        ("hole", "load", []),
        ("row_read", "load", ["stray_kv_write", "kv_not_written"]),
    ],
)
def test_what_a_kernel_that_went_astray_did_to_kv_is_told_once(kind: str, access: str, faults: list[str]) -> None:
    case = Case()
    case.pool.k_buffer[0][4] = 5.0
    case.pool.k_buffer[0][2] = 1000.0
    violations: Any = (SimpleNamespace(kind=kind, access=access),)
    found = kv_written_where_told(replace(case.view(), strays=Strays(violations)))
    assert [fault.signature.kind for fault in found] == faults


def test_restored_pool_is_as_a_faultless_step_leaves_it() -> None:
    case, sound = Case(), Case()
    case.pool.k_buffer[0][2] = 1000.0  # its own, not written
    case.pool.v_buffer[1][4] = 5.0  # nobody's, written
    restore_kv(case.view())
    for one, other in zip(
        case.pool.k_buffer + case.pool.v_buffer, sound.pool.k_buffer + sound.pool.v_buffer, strict=True
    ):
        assert torch.equal(one, other)


SCALED = World(kv_dtype="fp8_e4m3", kv_scale=16)  # k / 2, v / 4


def stored(k_scale: float, v_scale: float) -> StepView:
    """The step over a pool of fp8 that got K and V so divided."""
    case = Case()
    for name, scale in (("k", k_scale), ("v", v_scale)):
        buffers = getattr(case.pool, f"{name}_buffer")
        buffers[:] = [torch.full((SLOTS, HEADS, DIM), 7, dtype=torch.uint8) for _ in buffers]
        for tap in taps():
            rows = (getattr(tap, name) / scale).to(torch.float8_e4m3fn).view(torch.uint8)
            buffers[tap.layer_index][LOC] = rows.view(2, HEADS, DIM)
    case.pool.dtype = torch.float8_e4m3fn
    case.kv_before = [torch.full((SLOTS, HEADS, DIM), 7, dtype=torch.uint8) for _ in range(2 * LAYERS)]
    return case.view(world=SCALED)


def test_kv_stored_scaled_is_no_fault() -> None:
    assert kv_written_where_told(stored(2, 4)) == []


def test_kv_stored_without_its_scale_is_told_from_kv_not_stored() -> None:
    assert told(kv_written_where_told(stored(1, 4))) == [
        ("state/kv_stored_unscaled/Leaf.forward_decode", "K of layer 0: rows [5, 2]"),
        ("state/kv_stored_unscaled/Leaf.forward_decode", "K of layer 1: rows [5, 2]"),
    ]
    assert [fault.signature.kind for fault in kv_written_where_told(stored(2, 16))] == ["kv_not_written"] * 2


def test_restored_pool_keeps_what_was_stored_without_its_scale() -> None:
    view = stored(1, 16)
    pool = view.plan.runner.token_to_kv_pool
    pool.k_buffer[0][4] = 3  # nobody's
    restore_kv(view)
    values = [buffer.view(torch.float8_e4m3fn).float()[5, 0, 0].item() for buffer in (*pool.k_buffer, *pool.v_buffer)]
    assert values == [1.0, 11.0, 0.5, 3.0]
    assert pool.k_buffer[0][4].tolist() == [[7, 7]]


# --- inputs ------------------------------------------------------------------------------------------------------


def test_inputs_left_alone_are_no_fault() -> None:
    assert inputs_unchanged(Case().view()) == []


def test_input_that_a_forward_changed() -> None:
    view = Case().view()
    view.inputs_after["seq_lens"][1] = 3
    assert told(inputs_unchanged(view)) == [("state/input_changed/Leaf.seq_lens", "seq_lens was [3, 2] and is [3, 3]")]


# --- metadata ----------------------------------------------------------------------------------------------------


def test_sound_metadata_is_no_fault() -> None:
    # 99 lies behind what kv_indptr bounds: nobody reads it.
    assert metadata_sound(Case().view()) == []


def test_backend_without_metadata_is_no_fault() -> None:
    assert metadata_sound(Case().view(leaf=Leaf(None))) == []


@pytest.mark.parametrize(
    ("indptr", "indices", "signature", "message"),
    [
        ((0, 3, 2), (3, 1, 5), "indptr_falls/Leaf.kv_indptr", "kv_indptr is [0, 3, 2]"),
        ((1, 3, 5), (3, 1, 5, 7, 2), "indptr_falls/Leaf.kv_indptr", "kv_indptr is [1, 3, 5]"),
        ((0, 3, 5), (3, 1, 5, 7), "indices_short/Leaf.kv_indices", "kv_indptr ends at 5, kv_indices has 4"),
        ((0, 3, 5), (3, 1, 4, 7, 2), "foreign_slot/Leaf.kv_indices", "request 0 reads slots [4], not its own"),
        ((0, 3, 5), (3, 1, 5, 5, 2), "foreign_slot/Leaf.kv_indices", "request 1 reads slots [5], not its own"),
        # Slot 6 is request 0's, but behind the three tokens that this step may see.
        ((0, 3, 5), (3, 1, 6, 7, 2), "foreign_slot/Leaf.kv_indices", "request 0 reads slots [6], not its own"),
    ],
)
def test_unsound_metadata(indptr: tuple[int, ...], indices: tuple[int, ...], signature: str, message: str) -> None:
    view = Case().view(leaf=Leaf(metadata(indptr, indices)))
    assert told(metadata_sound(view)) == [(f"state/{signature}.decode", message)]


def test_what_lies_behind_the_rows_of_the_batch_is_nobodys_business() -> None:
    view = Case().view(leaf=Leaf(metadata((0, 3, 5, 0, 0))))
    assert metadata_sound(view) == []


# --- who writes KV -----------------------------------------------------------------------------------------------


def test_a_layer_that_leaves_kv_to_its_model_is_no_fault() -> None:
    assert kv_left_to_the_model(Case().view()) == []


def test_a_layer_that_writes_kv_though_told_not_to() -> None:
    made = taps()
    view = Case().view(taps=[made[0], replace(made[1], stored=True)])
    assert told(kv_left_to_the_model(view)) == [
        (
            "state/save_kv_cache_ignored/Leaf.forward_decode",
            "layers [1] wrote to KV buffers; models that write K and V themselves call them so",
        )
    ]


# --- the leaf ----------------------------------------------------------------------------------------------------


def test_wrapper_says_which_leaf_serves_a_mode_and_a_leaf_serves_itself() -> None:
    leaf = Leaf(None)
    wrapper = SimpleNamespace(_select_backend={"decode": leaf}.get)
    assert serving_leaf(wrapper, "decode") is leaf
    assert serving_leaf(leaf, "decode") is leaf


def test_a_wrapper_over_halves_that_hands_nothing_on_is_served_by_its_backend_of_whole_batches() -> None:
    leaf = Leaf(None)
    wrapper = SimpleNamespace(primary=SimpleNamespace(_select_backend={"decode": leaf}.get), children=())
    assert serving_leaf(wrapper, "decode") is leaf
