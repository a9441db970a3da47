"""The EAGLE tree stand-ins: trees written out by hand, and a refusal that names the argument for each contract line."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.eagle_tree import build_tree_kernel_efficient, verify_tree_greedy
from tests.stubs.breach import refused


def longs(*values: Any) -> Any:
    return torch.tensor(values, dtype=torch.int64)


def build_call(**changes: Any) -> dict[str, Any]:
    """Two requests of 4 and 2 tokens, topk 2, depth 3, five nodes each.

    Request 0: 1 and 2 under the root, 3 under 1, 4 under 3. Request 1: a chain 1-2-3 beside 4 under 1.
    """
    call: dict[str, Any] = {
        "parent_list": longs([-1, 0, 1, 3, 4], [-1, 0, 1, 2, 3]),
        "selected_index": longs([0, 1, 3, 7], [0, 2, 6, 3]),
        "verified_seq_len": longs(4, 2),
        "tree_mask": torch.full((5 * 9 + 5 * 7,), 7, dtype=torch.uint8),
        "positions": torch.zeros(10, dtype=torch.int64),
        "topk": 2,
        "depth": 3,
        "draft_token_num": 5,
        "tree_mask_mode": 0,
    }
    for name in ("retrive_index", "retrive_next_token", "retrive_next_sibling"):
        call[name] = torch.full((2, 5), -1, dtype=torch.int64)
    return call | changes


def built(**changes: Any) -> dict[str, Any]:
    call = build_call(**changes)
    assert build_tree_kernel_efficient(**call) is None
    return call


FIRST_TREE = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]]
SECOND_TREE = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 0, 1]]


def test_positions_are_the_length_plus_the_depth() -> None:
    assert built()["positions"].tolist() == [4, 5, 5, 6, 7, 2, 3, 4, 5, 4]


def test_retrive_index_counts_through_the_batch() -> None:
    assert built()["retrive_index"].tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_next_token_is_the_first_child() -> None:
    assert built()["retrive_next_token"].tolist() == [[1, 3, -1, 4, -1], [1, 2, 3, -1, -1]]


def test_next_sibling_is_the_next_child_of_the_same_parent() -> None:
    assert built()["retrive_next_sibling"].tolist() == [[-1, 2, -1, -1, -1], [-1, -1, 4, -1, -1]]


def test_full_mask_holds_the_tree_in_the_last_columns_and_leaves_the_prefix() -> None:
    mask = built()["tree_mask"]
    first, second = mask[:45].view(5, 9), mask[45:].view(5, 7)
    assert first[:, 4:].tolist() == FIRST_TREE
    assert second[:, 2:].tolist() == SECOND_TREE
    assert bool((first[:, :4] == 7).all())
    assert bool((second[:, :2] == 7).all())


def test_qlen_only_holds_the_squares_one_after_the_other() -> None:
    mask = built(tree_mask_mode=1, tree_mask=torch.ones(50, dtype=torch.bool))["tree_mask"]
    assert mask.view(2, 5, 5).int().tolist() == [FIRST_TREE, SECOND_TREE]


def test_bitpacking_holds_a_byte_a_node() -> None:
    mask = built(tree_mask_mode=2, tree_mask=torch.zeros(10, dtype=torch.uint8))["tree_mask"]
    assert mask.tolist() == [0b1, 0b11, 0b101, 0b1011, 0b11011, 0b1, 0b11, 0b111, 0b1111, 0b10011]


def test_bitpacking_of_nine_nodes_takes_two_bytes_low_byte_first() -> None:
    chain = {
        "parent_list": longs([-1, 0, 1, 2, 3, 4, 5, 6]),
        "selected_index": longs([0, 1, 2, 3, 4, 5, 6, 7]),
        "verified_seq_len": longs(1),
        "positions": torch.zeros(9, dtype=torch.int64),
        "topk": 1,
        "depth": 8,
        "draft_token_num": 9,
    }
    links = {
        name: torch.full((1, 9), -1, dtype=torch.int64)
        for name in ("retrive_index", "retrive_next_token", "retrive_next_sibling")
    }
    mask = built(tree_mask_mode=2, tree_mask=torch.zeros(9, dtype=torch.uint16), **chain, **links)["tree_mask"]
    assert mask.tolist() == [1, 3, 7, 15, 31, 63, 127, 255, 511]


def test_a_tree_of_one_step_needs_no_parents() -> None:
    call = built(
        parent_list=torch.empty(2, 0),
        selected_index=longs([0, 1], [0, 1]),
        draft_token_num=3,
        depth=1,
        tree_mask=torch.ones(3 * 7 + 3 * 5, dtype=torch.bool),
        positions=torch.zeros(6, dtype=torch.int64),
        retrive_index=torch.full((2, 3), -1),
        retrive_next_token=torch.full((2, 3), -1),
        retrive_next_sibling=torch.full((2, 3), -1),
    )
    assert call["retrive_next_sibling"].tolist() == [[-1, 2, -1], [-1, 2, -1]]


def test_a_mask_buffer_larger_than_the_batch_is_taken() -> None:
    mask = built(tree_mask=torch.full((200,), 7, dtype=torch.uint8))["tree_mask"]
    assert bool((mask[80:] == 7).all())


BUILD_BREACHES = [
    ("parent_list", {"parent_list": longs([-1, 0, 1, 3], [-1, 0, 1, 2])}, None),
    ("parent_list", {"parent_list": longs([-1, 0, 1, 3, 4])}, None),
    ("selected_index", {"selected_index": longs([0, 1, 3], [0, 2, 6])}, None),
    ("selected_index", {"selected_index": longs([0, 1, 3, 10], [0, 2, 6, 3])}, 0),
    ("selected_index", {"selected_index": longs([0, 1, 3, 7], [0, 2, 6, 9]).clone()}, 1),
    ("selected_index", {"selected_index": longs([0, 1, 3, 7], [0, 2, 6, -1])}, 1),
    ("verified_seq_len", {"verified_seq_len": torch.tensor([4, 2], dtype=torch.int32)}, None),
    ("verified_seq_len", {"verified_seq_len": longs(4, -2)}, 1),
    ("tree_mask", {"tree_mask": torch.zeros(79, dtype=torch.bool)}, None),
    ("tree_mask", {"tree_mask": torch.zeros(49, dtype=torch.bool), "tree_mask_mode": 1}, None),
    ("tree_mask", {"tree_mask": torch.zeros(9, dtype=torch.uint8), "tree_mask_mode": 2}, None),
    ("tree_mask", {"tree_mask": torch.zeros(160, dtype=torch.bool)[::2]}, None),
    ("positions", {"positions": torch.zeros(9, dtype=torch.int64)}, None),
    ("positions", {"positions": torch.zeros(10, dtype=torch.int32)}, None),
    ("retrive_index", {"retrive_index": torch.full((2, 4), -1)}, None),
    ("retrive_next_token", {"retrive_next_token": torch.full((2, 6), -1)}, None),
    ("retrive_next_token", {"retrive_next_token": torch.zeros(2, 5, dtype=torch.int64)}, None),
    ("retrive_next_sibling", {"retrive_next_sibling": torch.full((5, 2), -1).T}, None),
    ("tree_mask_mode", {"tree_mask_mode": 3}, None),
    ("topk", {"topk": 0}, None),
    ("depth", {"depth": 0}, None),
    ("draft_token_num", {"draft_token_num": 0}, None),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), BUILD_BREACHES)
def test_a_build_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused("build_tree_kernel_efficient", argument, request_at_fault):
        build_tree_kernel_efficient(**build_call(**changes))


def verify_call(**changes: Any) -> dict[str, Any]:
    """The trees above; the target takes request 0 down nodes 1, 3 and 4, and request 1 to node 1 only."""
    call: dict[str, Any] = {
        "predicts": torch.full((10,), -9, dtype=torch.int32),
        "accept_index": torch.full((2, 4), -1, dtype=torch.int32),
        "accept_token_num": torch.zeros(2, dtype=torch.int32),
        "candidates": longs([100, 101, 102, 103, 104], [200, 201, 202, 203, 204]),
        "retrive_index": longs([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]),
        "retrive_next_token": longs([1, 3, -1, 4, -1], [1, 2, 3, -1, -1]),
        "retrive_next_sibling": longs([-1, 2, -1, -1, -1], [-1, -1, 4, -1, -1]),
        "target_predict": longs([101, 103, 0, 104, 105], [201, 999, 0, 0, 0]),
    }
    return call | changes


def test_the_walk_accepts_what_the_target_would_have_said() -> None:
    call = verify_call()
    assert verify_tree_greedy(**call) is None
    assert call["accept_index"].tolist() == [[0, 1, 3, 4], [5, 6, -1, -1]]
    assert call["accept_token_num"].tolist() == [3, 1]
    assert call["predicts"].tolist() == [101, 103, -9, 104, 105, 201, 999, -9, -9, -9]


def test_the_walk_passes_over_siblings() -> None:
    call = verify_call(target_predict=longs([102, 0, 7, 0, 0], [201, 204, 0, 0, 8]))
    verify_tree_greedy(**call)
    assert call["accept_index"].tolist() == [[0, 2, -1, -1], [5, 6, 9, -1]]


def test_the_walk_stops_at_the_width_of_accept_index() -> None:
    call = verify_call(accept_index=torch.full((2, 2), -1, dtype=torch.int32))
    verify_tree_greedy(**call)
    assert call["accept_index"].tolist() == [[0, 1], [5, 6]]
    assert call["predicts"].tolist() == [101, 103, -9, -9, -9, 201, 999, -9, -9, -9]


VERIFY_BREACHES = [
    ("predicts", {"predicts": torch.zeros(9, dtype=torch.int32)}, None),
    ("predicts", {"predicts": torch.zeros(10, dtype=torch.int64)}, None),
    ("accept_index", {"accept_index": torch.zeros(3, 4, dtype=torch.int32)}, None),
    ("accept_token_num", {"accept_token_num": torch.zeros(3, dtype=torch.int32)}, None),
    ("candidates", {"candidates": torch.zeros(2, 5, dtype=torch.int32)}, None),
    ("target_predict", {"target_predict": torch.zeros(2, 4, dtype=torch.int64)}, None),
    ("retrive_index", {"retrive_index": longs([0, 1, 2, 3, 4], [5, 6, 7, 8, 10])}, 1),
    ("retrive_next_token", {"retrive_next_token": longs([1, 3, -1, 5, -1], [1, 2, 3, -1, -1])}, 0),
    ("retrive_next_sibling", {"retrive_next_sibling": longs([-1, 2, -1, -1, -1], [-1, -1, 4, -2, -1])}, 1),
    (
        "retrive_next_sibling",
        {"retrive_next_sibling": longs([-1, 2, 1, -1, -1], [-1] * 5), "target_predict": longs([9] * 5, [9] * 5)},
        0,
    ),
]


@pytest.mark.parametrize(("argument", "changes", "request_at_fault"), VERIFY_BREACHES)
def test_a_walk_outside_the_contract_is_refused(
    argument: str, changes: dict[str, Any], request_at_fault: int | None
) -> None:
    with refused("verify_tree_greedy", argument, request_at_fault):
        verify_tree_greedy(**verify_call(**changes))
