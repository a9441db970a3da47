"""Trees of drafts from SGLang's links, sound and garbage."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stubs.draft_tree import ancestors, deepest_path, fill, parents


def links(child: list[int], sibling: list[int]) -> Any:
    return SimpleNamespace(retrieve_next_token=torch.tensor([child]), retrieve_next_sibling=torch.tensor([sibling]))


# Root 0 has children 1 and 2; 2 has child 3.
TREE = ([1, -1, 3, -1], [-1, 2, -1, -1])


def test_parents_follow_from_first_children_and_siblings() -> None:
    assert parents(links(*TREE), 0) == [None, 0, 0, 2]
    assert parents(links([1, 2, -1], [-1, -1, -1]), 0) == [None, 0, 1]


@pytest.mark.parametrize(
    ("child", "sibling", "found"),
    [
        ([1, -1], [-1, 1], [None, 0]),  # a node that is its own sibling
        ([1, 0], [-1, -1], [1, 0]),  # a root that is its child's child
        ([9, -1], [-1, -1], [None, None]),  # a child that is not there
    ],
)
def test_garbage_in_the_links_ends(child: list[int], sibling: list[int], found: list[int | None]) -> None:
    assert parents(links(child, sibling), 0) == found


def test_node_sees_itself_and_itsancestors() -> None:
    assert ancestors([None, 0, 0, 2]).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]


@pytest.mark.parametrize(
    ("tree", "tokens", "count"),
    [
        ([None, 0, 1, 0, 0], [3, 7, 8, 0, 0], 2),
        ([None, 0, 1, 0, 0], [0, 0, 8, 4, 0], 1),
        ([None, 0, 1, 0, 1], [3, 7, 8, 0, 0], 0),
        ([None, 0, 0], [0, 0, 0], 2),
        ([None], [0], 0),
    ],
)
def test_what_fills_up_are_the_last_nodes_under_the_root_of_token_0(
    tree: list[int | None], tokens: list[int], count: int
) -> None:
    assert fill(tree, tokens) == count


def test_ancestors_of_a_cycle_are_the_cycle() -> None:
    assert ancestors([1, 0, None]).int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ([None, 0, 0, 2], [0, 2, 3]),
        ([None, 0, 1, 2], [0, 1, 2, 3]),
        ([None, 0, 0, 0], [0, 1]),  # of equally deep ones the first
        ([None, None, 1], [0]),  # what hangs on no root is no path
        ([1, 0], [0]),  # nor is a cycle
        ([None, 2, 1, 0], [0, 3]),
    ],
)
def test_deepest_path(tree: list[int | None], path: list[int]) -> None:
    assert deepest_path(tree) == path
