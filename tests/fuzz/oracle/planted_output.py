"""A step with planted outputs, as the numeric oracle sees one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from fuzz.oracle.numeric import matches_reference
from fuzz.oracle.view import Fault, StepView
from stubs.layer import layer_of
from stubs.live import History
from stubs.plan import RowPlan
from stubs.reference import attend
from stubs.tap import Tap
from stubs.world import World

HEADS, KV_HEADS, DIM = 2, 1, 8
CAUSAL = "11110 11111"  # two new tokens after three


class Leaf:
    """A backend by name alone."""


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Case:
    """One request with ``prefix`` committed tokens and ``count`` new ones; another request's rows come first in q."""

    def __init__(
        self, prefix: int, count: int, *, tree: torch.Tensor | None = None, fill: int = 0, **world: Any
    ) -> None:
        self.world = World(**{"num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM, **world})
        dtype = getattr(torch, self.world.dtype)
        self.dim = self.world.head_dim
        self.prefix, self.count, self.before = prefix, count, 2
        self.scale = layer_of(self.world, 0).scaling
        tokens = self.before + count
        widths = (HEADS, KV_HEADS, KV_HEADS)
        self.q, self.k, self.v = (
            (2 * draw(tokens, n * self.dim, seed=seed)).to(dtype) for seed, n in zip((1, 2, 3), widths, strict=True)
        )
        history = [History(*((2 * draw(n, KV_HEADS, self.dim, seed=seed)).to(dtype) for seed in (s, s + 1)))
                   for n, s in ((0, 4), (prefix, 6))]  # fmt: skip
        other, live = (SimpleNamespace(request_id=i, target=[history[i]], draft=[]) for i in range(2))
        self.rows = (RowPlan(other, 0, self.before, 0), RowPlan(live, self.before, count, prefix, tree, fill))  # type: ignore[arg-type]
        self.history = history[1]
        self.pool: Any = None

    def output(self, mask: torch.Tensor, logit_cap: float = 0.0, sinks: torch.Tensor | None = None) -> torch.Tensor:
        """[tokens, heads * dim]: the other request right, ours under ``mask`` [count, prefix + count]."""
        parts = []
        for row, seen in zip(self.rows, (torch.ones(2, 2).tril().bool(), mask), strict=True):
            rows = slice(row.start, row.start + row.count)
            history = row.live.target[0]
            k, v = (t[rows].view(row.count, KV_HEADS, self.dim) for t in (self.k, self.v))
            q = self.q[rows].view(row.count, HEADS, self.dim)
            keys, values = torch.cat([history.k, k]), torch.cat([history.v, v])
            parts.append(attend(q, keys, values, scale=self.scale, mask=seen, logit_cap=logit_cap, sinks=sinks))
        return torch.cat(parts).to(self.q.dtype).flatten(1)

    def judge(self, out: torch.Tensor) -> list[Fault]:
        mode = SimpleNamespace(is_decode=lambda: self.count == 1)
        plan = SimpleNamespace(
            mode="decode", on_draft=False, rows=self.rows, tokens=self.before + self.count,
            forward_batch=SimpleNamespace(forward_mode=mode), graph=None,
            runner=SimpleNamespace(token_to_kv_pool=self.pool),
        )  # fmt: skip
        taps = [Tap(0, self.q, self.k, self.v, out)]
        return matches_reference(StepView(self.world, plan, taps, [], {}, {}, None, Leaf()))  # type: ignore[arg-type]


def in_fp8(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.float8_e4m3fn).to(values.dtype)


def mask(text: str) -> torch.Tensor:
    """Rows of 0 and 1, one for each query, as a mask over the keys."""
    return torch.tensor([[int(c) for c in row] for row in text.split()]).bool()


def signatures(faults: list[Fault]) -> list[str]:
    return [str(fault.signature) for fault in faults]
