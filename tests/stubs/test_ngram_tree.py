"""Drafts of a corpus: their trees written out by hand, and a refusal that names the argument for each contract line."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stubs.kernels.contract import ContractBreach
from stubs.kernels.eagle_tree import verify_tree_greedy
from stubs.kernels.ngram_tree import reconstruct_indices_from_tree_mask
from stubs.ngram_tree import draw_drafts, draw_parents
from stubs.speculation import ngram_depth

# What SGLang's own corpus (its C++ of 0.5.23, breadth 1) makes of the texts 1 2 3 4 5 and 9 3 7 8 after 1 2 3: tokens
# 3, 7 4, 8 5 and a 0 that fills up. 7 comes after 3, 4 after 2 3; both hang under the root.
CORPUS = [
    [1, 0, 0, 0, 0, 0],
    [1, 1, 0, 0, 0, 0],
    [1, 0, 1, 0, 0, 0],
    [1, 1, 0, 1, 0, 0],
    [1, 0, 1, 0, 1, 0],
    [1, 0, 0, 0, 0, 1],
]
CHAIN = [
    [1, 0, 0, 0, 0, 0],
    [1, 1, 0, 0, 0, 0],
    [1, 1, 1, 0, 0, 0],
    [1, 1, 1, 1, 0, 0],
    [1, 1, 1, 1, 1, 0],
    [1, 1, 1, 1, 1, 1],
]


def read_call(**changes: Any) -> dict[str, Any]:
    """Two requests of 4 and 9 tokens: the corpus' tree and a chain."""
    call: dict[str, Any] = {
        "tree_mask": torch.tensor([CORPUS, CHAIN], dtype=torch.uint8).flatten(),
        "verified_seq_len": torch.tensor([4, 9]),
        "positions": torch.zeros(12, dtype=torch.int64),
        "batch_size": 2,
        "draft_token_num": 6,
    }
    for name in ("retrive_index", "retrive_next_token", "retrive_next_sibling"):
        call[name] = torch.full((2, 6), 77, dtype=torch.int64)
    return call | changes


def read(**changes: Any) -> dict[str, Any]:
    call = read_call(**changes)
    assert reconstruct_indices_from_tree_mask(**call) is None
    return call


def test_positions_are_the_length_plus_the_depth() -> None:
    assert read()["positions"].tolist() == [4, 5, 5, 6, 6, 5, 9, 10, 11, 12, 13, 14]


def test_retrive_index_counts_through_the_batch() -> None:
    assert read()["retrive_index"].tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_next_token_is_the_first_child() -> None:
    assert read()["retrive_next_token"].tolist() == [[1, 3, 4, -1, -1, -1], [1, 2, 3, 4, 5, -1]]


def test_next_sibling_has_the_same_parent() -> None:
    assert read()["retrive_next_sibling"].tolist() == [[-1, 2, 5, -1, -1, -1], [-1] * 6]


def test_a_longer_mask_is_taken() -> None:
    longer = torch.cat([read_call()["tree_mask"], torch.ones(9, dtype=torch.uint8)])
    assert read(tree_mask=longer)["positions"].tolist()[:6] == [4, 5, 5, 6, 6, 5]


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"draft_token_num": 0}, "draft_token_num"),
        ({"draft_token_num": 1025}, "draft_token_num"),
        ({"tree_mask": torch.ones(72, dtype=torch.int32)}, "tree_mask"),
        ({"tree_mask": torch.ones(71, dtype=torch.bool)}, "tree_mask"),
        ({"tree_mask": torch.ones(2, 36, dtype=torch.bool)}, "tree_mask"),
        ({"tree_mask": torch.ones(144, dtype=torch.bool)[::2]}, "tree_mask"),
        ({"verified_seq_len": torch.tensor([4])}, "verified_seq_len"),
        ({"verified_seq_len": torch.tensor([4, 9], dtype=torch.int32)}, "verified_seq_len"),
        ({"positions": torch.zeros(11, dtype=torch.int64)}, "positions"),
        ({"retrive_index": torch.zeros(2, 5, dtype=torch.int64)}, "retrive_index"),
        ({"retrive_next_token": torch.zeros(2, 6, dtype=torch.int32)}, "retrive_next_token"),
        ({"retrive_next_sibling": torch.zeros(6, 2, dtype=torch.int64).T}, "retrive_next_sibling"),
    ],
)
def test_a_breach_names_the_argument(changes: dict[str, Any], argument: str) -> None:
    with pytest.raises(ContractBreach) as caught:
        read(**changes)
    assert caught.value.argument == argument


def trees(width: int, breadth: int, count: int = 200) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [draw_parents(width, breadth, generator) for _ in range(count)]


def deepest(parents: list[int]) -> int:
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    return max(depths)


@pytest.mark.parametrize(("width", "least"), [(2, 1), (3, 1), (4, 2), (7, 3), (8, 4)])
def test_a_path_of_half_the_rows_is_certain(width: int, least: int) -> None:
    assert ngram_depth(width) == least
    assert min(deepest(parents) for parents in trees(width, 3)) == least


def test_nodes_come_level_by_level() -> None:
    assert all(parents == sorted(parents) for parents in trees(8, 2))


def test_all_nodes_but_the_certain_ones_may_be_missing() -> None:
    assert {len(parents) for parents in trees(6, 2)} == {3, 4, 5}


def test_below_the_root_no_node_has_more_children_than_the_breadth() -> None:
    drawn = trees(8, 2)
    assert {max(parents.count(node) for node in range(1, 8)) for parents in drawn} == {1, 2}


def test_the_root_branches_at_breadth_one_too() -> None:
    assert {parents.count(0) for parents in trees(4, 1)} == {1, 2}
    assert {max(parents.count(node) for node in range(1, 8)) for parents in trees(8, 1)} == {1}


def test_a_mask_says_who_is_above_whom() -> None:
    tokens, mask = draw_drafts(2, 2, 1, torch.Generator().manual_seed(0), vocab=5)
    assert (len(tokens), int(tokens.max()) < 5, mask.dtype) == (4, True, torch.uint8)
    assert mask.tolist() == [1, 0, 1, 1] * 2


def test_missing_nodes_are_filled_up_by_children_of_the_root_of_token_0() -> None:
    tokens, mask = draw_drafts(100, 6, 2, torch.Generator().manual_seed(0), vocab=9)
    fills = 0
    for drafted, square in zip(tokens.view(100, 6), mask.view(100, 6, 6), strict=True):
        found = int((drafted > 0).sum())
        fills += 6 - found
        assert drafted[found:].tolist() == [0] * (6 - found)
        assert torch.equal(square[found:, 1:], torch.eye(6, dtype=torch.uint8)[found:, 1:])
        assert square[:, 0].tolist() == [1] * 6
    assert fills > 50


@pytest.mark.parametrize(("next_tokens", "accepted"), [([0, 7, 7, 6, 5, 5], [0, 3]), ([4, 0, 7, 6, 5, 5], [0, 1])])
def test_what_fills_up_is_accepted_where_the_targets_next_token_is_0(
    next_tokens: list[int], accepted: list[int]
) -> None:
    links = [torch.tensor([row]) for row in ([0, 1, 2, 3, 4, 5], [1, 2, -1, -1, -1, -1], [-1, 3, -1, 4, 5, -1])]
    count, path = torch.zeros(1, dtype=torch.int32), torch.full((1, 6), -1, dtype=torch.int32)
    drafted = torch.tensor([[3, 4, 8, 0, 0, 0]])
    verify_tree_greedy(torch.zeros(6, dtype=torch.int32), path, count, drafted, *links, torch.tensor([next_tokens]))
    assert path[0, : int(count) + 1].tolist() == accepted
