"""Drafts as a corpus of texts makes them: a tree a request, of as many nodes as asked for, and no draft model.

As SGLang's corpus does: nodes come level by level; each place where the text was seen before hangs its continuation under
the root, whatever the breadth; nodes that are missing at the end hang under the root, too.
"""

from __future__ import annotations

import torch

from stubs.speculation import ngram_depth


def draw_drafts(
    size: int, width: int, breadth: int, generator: torch.Generator, vocab: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens int64 [size * width] and, flat, who sees whom: uint8 [size * width * width]."""
    tokens = torch.randint(0, vocab, (size * width,), generator=generator)
    squares = [_ancestry(draw_parents(width, breadth, generator)) for _ in range(size)]
    return tokens, torch.stack(squares).flatten()


def draw_parents(width: int, breadth: int, generator: torch.Generator) -> list[int]:
    """The parent of each node but the root, level by level; one path is ``ngram_depth`` nodes long or longer.

    Below the root no node has more than ``breadth`` children.
    """
    parents = list(range(ngram_depth(width)))  # the certain path
    found = int(torch.randint(len(parents), width, (1,), generator=generator))  # of these, the others are missing
    while len(parents) < found:
        open_nodes = [node for node in range(1, len(parents) + 1) if parents.count(node) < breadth]
        choices = [0, *open_nodes, open_nodes[-1]]  # the newest one twice: long texts come back whole
        parents.append(choices[int(torch.randint(0, len(choices), (1,), generator=generator))])
    return _by_levels(parents) + [0] * (width - 1 - len(parents))


def _by_levels(parents: list[int]) -> list[int]:
    """The same tree with its nodes numbered level by level."""
    level = [0]
    ordered: list[int] = []
    places = {0: 0}
    while level:
        children = [node for parent in level for node in range(1, len(parents) + 1) if parents[node - 1] == parent]
        for node in children:
            ordered.append(places[parents[node - 1]])
            places[node] = len(ordered)
        level = children
    return ordered


def _ancestry(parents: list[int]) -> torch.Tensor:
    """uint8 [n, n]: 1 where the column's node is the row's node or above it."""
    square = torch.eye(len(parents) + 1, dtype=torch.uint8)
    for node, parent in enumerate(parents, start=1):
        square[node] |= square[parent]
    return square
