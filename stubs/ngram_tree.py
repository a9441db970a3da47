"""Drafts as a corpus of texts makes them: a tree a request, of as many nodes as asked for, and no draft model.

As SGLang's corpus does: nodes come level by level; each place where the text was seen before hangs its continuation under
the root, whatever the breadth; nodes that are missing at the end hang under the root, too, with token 0.

Such a fill is a draft like any other: its row of the mask shows the root and itself, and where the target's next token is
0 SGLang accepts it and goes on from its output. Greedily that is the first one, where no draft under the root is 0; a
sampled verify asks each in turn. Sources: fillResult in the corpus' C++ of 0.5.5 to 0.5.23; VerifyTreeGreedy and
TreeSpeculativeSamplingTargetOnly in the wheel's CUDA.
"""

from __future__ import annotations

import torch

from stubs.speculation import ngram_depth

FILL_TOKEN = 0


def draw_drafts(
    size: int, width: int, breadth: int, generator: torch.Generator, vocab: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens int64 [size * width] and, flat, who sees whom: uint8 [size * width * width]. Fills alone have token 0."""
    tokens = torch.randint(FILL_TOKEN + 1, vocab, (size, width), generator=generator)
    squares = []
    for row in tokens:
        parents = draw_parents(width, breadth, generator)
        row[len(parents) + 1 :] = FILL_TOKEN
        squares.append(_ancestry(parents + [0] * (width - 1 - len(parents))))
    return tokens.flatten(), torch.stack(squares).flatten()


def draw_parents(width: int, breadth: int, generator: torch.Generator) -> list[int]:
    """The parent of each node found but the root, level by level: ``width`` - 1 of them or fewer.

    One path is ``ngram_depth`` nodes long or longer. Below the root no node has more than ``breadth`` children.
    """
    parents = list(range(ngram_depth(width)))  # the certain path
    found = int(torch.randint(len(parents), width, (1,), generator=generator))
    while len(parents) < found:
        open_nodes = [node for node in range(1, len(parents) + 1) if parents.count(node) < breadth]
        choices = [0, *open_nodes, open_nodes[-1]]  # the newest one twice: long texts come back whole
        parents.append(choices[int(torch.randint(0, len(choices), (1,), generator=generator))])
    return _by_levels(parents)


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
