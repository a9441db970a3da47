"""One live request: its row, its KV slots, and the keys and values that its slots ought to hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(slots=True)
class History:
    """The truth about one request's KV in one layer: K and V as written, [length, num_kv_heads, head_dim], on the host."""

    k: torch.Tensor
    v: torch.Tensor

    def extended(self, k: torch.Tensor, v: torch.Tensor) -> History:
        return History(torch.cat([self.k, k]), torch.cat([self.v, v]))

    def first(self, length: int) -> History:
        return History(self.k[:length], self.v[:length])


@dataclass(slots=True)
class LiveRequest:
    """``slots`` are all KV slots its row holds, in token order; the first ``length`` hold committed KV,
    and the row in req_to_token says so up to ``written``.

    ``window_slots`` are the peers of ``slots`` in a pool of window layers, 0 where one was given up: the first ``evicted``
    tokens' but the ``protected`` ones, which the prefix cache holds. ``decoded`` counts steps since the last extend.
    The first ``encoder`` of them are its encoder's, whose KV layers of cross attention alone have: the history of such a layer
    ends there, and that of another layer holds 0 up to there.
    ``shared`` leading tokens lie in slots of another request (a prefix cache hit). ``target`` and ``draft`` are
    the histories per layer of the two models.
    """

    request_id: int
    record: Any  # SGLang's Req
    row: int
    slots: list[int]
    length: int = 0
    written: int = 0
    shared: int = 0
    encoder: int = 0
    chunking: bool = False
    window_slots: list[int] = field(default_factory=list)
    evicted: int = 0
    protected: int = 0
    decoded: int = 0
    target: list[History] = field(default_factory=list)
    draft: list[History] = field(default_factory=list)
