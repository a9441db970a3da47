"""A verified draft's tree: who is whose parent, who sees whom, and the longest path; links that are garbage end nowhere."""

from __future__ import annotations

from typing import Any

import torch

from stubs import sglang_spec
from stubs.ngram_tree import FILL_TOKEN


def parents(verify_input: Any, request: int) -> list[int | None]:
    """Parent of each tree node (None for the root), read off SGLang's first-child and next-sibling links."""
    child = sglang_spec.retrieve(verify_input, "next_token")[request].tolist()
    sibling = sglang_spec.retrieve(verify_input, "next_sibling")[request].tolist()
    found: list[int | None] = [None] * len(child)
    for node, first in enumerate(child):
        seen = 0
        while 0 <= first < len(child) and seen < len(child):  # bounded: garbage in the links must not hang us
            found[first] = node
            first, seen = sibling[first], seen + 1
    return found


def ancestors(parents: list[int | None]) -> torch.Tensor:
    """bool [n, n]: each node (row) with itself and its ancestors."""
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node in range(len(parents)):
        above, seen = parents[node], 0
        while above is not None and seen < len(parents):
            mask[node, above] = True
            above, seen = parents[above], seen + 1
    return mask


def fill(parents: list[int | None], tokens: list[int]) -> int:
    """How many nodes at the end fill a corpus' tree up, by SGLang's own rule: under the root, and of token 0."""
    count = 0
    while count + 1 < len(parents) and (parents[-1 - count], tokens[-1 - count]) == (0, FILL_TOKEN):
        count += 1
    return count


def deepest_path(parents: list[int | None]) -> list[int]:
    """Nodes from the root to the deepest node, the first such."""
    best: list[int] = [0]
    for node in range(len(parents)):
        path, above = [node], parents[node]
        while above is not None and len(path) <= len(parents):
            path.append(above)
            above = parents[above]
        if above is None and path[-1] == 0 and len(path) > len(best):
            best = path[::-1]
    return best
