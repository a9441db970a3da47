"""Query rows of a request past the most that a call says a request has: a kernel may leave them out.

In a graph's replay that alone is no breach: its rows are as many as were captured, and those that no request of the batch
has are given to whoever comes last. If a live row is among them, it has no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch

from stubs.kernels.door import replays


def may_leave_out(most: int | None) -> bool:
    """Whether a request may have more than ``most`` rows."""
    return most is not None and replays()


@contextmanager
def left_out(rows: Sequence[int], most: int | None, *outs: torch.Tensor) -> Iterator[None]:
    """Within, rows past ``most`` of a request may be written; after it they are in ``outs`` [rows, ...] what they were.

    ``rows`` are cumulative, one more than requests.
    """
    past = [row for before, after in pairwise(rows) for row in range(before + most, after)] if most is not None else []
    held = [out[past].clone() for out in outs]
    yield
    for out, kept in zip(outs, held, strict=True):
        out[past] = kept
