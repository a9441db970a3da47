"""One forward as plain data: over which ForwardBatch it goes, and what the rows of each request mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stubs.draft_steps import DraftRun
from stubs.graph_prefill import PrefillGraphRunner
from stubs.graph_runner import GraphRunner
from stubs.layer import Layer
from stubs.live import LiveRequest


@dataclass(frozen=True, slots=True)
class RowPlan:
    """One request's part of a step: its tokens are rows [start, start + count) of q; ``prefix`` KV rows come before.

    ``tree`` is the ancestor mask bool [count, count] of a verified tree (a node sees itself and its ancestors), or
    None where the tokens are a causal run; its last ``fill`` nodes are no drafts, but what fills its rows up (see
    `stubs.ngram_tree`). ``copies`` are slots that hold the same as some of the prefix's; ``reach``
    is how many entries of the request's row the step works with, where they are more than prefix and count.

    The prefix begins with ``encoder`` tokens of the request's encoder. Where this step runs it, ``encoded_at`` is where they
    begin in k and v of the layers of cross attention; None where their KV lies in the pool already.
    """

    live: LiveRequest
    start: int
    count: int
    prefix: int
    tree: torch.Tensor | None = None
    fill: int = 0
    copies: tuple[int, ...] = ()
    reach: int = 0
    encoder: int = 0
    encoded_at: int | None = None

    @property
    def known(self) -> int:
        """KV rows that were there before the step: the prefix, without what the encoder gives in it."""
        return self.prefix if self.encoded_at is None else 0

    def given(self, layer: Layer) -> slice:
        """The rows of the layer's k and v that are this request's."""
        if not layer.is_cross:
            return slice(self.start, self.start + self.count)
        return slice(0) if self.encoded_at is None else slice(self.encoded_at, self.encoded_at + self.encoder)

    def written(self, layer: Layer) -> list[int]:
        """The slots that they are stored in."""
        if not layer.is_cross:
            return self.live.slots[self.prefix : self.prefix + self.count]
        return [] if self.encoded_at is None else self.live.slots[: self.encoder]

    def readable(self, layer: Layer) -> list[int]:
        """The slots that the layer may read for this request: its encoder's, or those of its own tokens."""
        entries = slice(self.encoder) if layer.is_cross else slice(self.encoder, self.prefix + self.count)
        return self.live.slots[entries]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One forward: on which runner, over which ForwardBatch, and what each request's rows mean.

    ``graph`` replays it, where SGLang would replay it. ``draft``: it is the draft's decode, all of its steps. ``padding``:
    requests of nobody behind those of ``rows``, in row 0 and slot 0; ``is_padded``: there are such, or tokens of nobody.
    ``is_planned``: it was planned before it was padded, so that no fresh wrapper can run it.
    ``eager`` makes the ForwardBatch of a server without graphs, planned on a backend given, where that is another one.
    """

    mode: str
    on_draft: bool
    runner: Any
    forward_batch: Any
    rows: tuple[RowPlan, ...]
    batch: dict[str, Any] = field(default_factory=dict)
    graph: GraphRunner | PrefillGraphRunner | None = None
    draft: DraftRun | None = None
    padding: int = 0
    is_padded: bool = False
    is_planned: bool = False
    eager: Callable[[Any], Any] | None = None
    input_ids: torch.Tensor | None = None  # the step's tokens as SGLang was given them; None: it makes them itself

    @property
    def padded_size(self) -> int:
        """Rows of the plan, padding included."""
        if self.graph is not None:
            return self.graph.padded(len(self.rows))
        return len(self.rows) + self.padding

    @property
    def may_pad(self) -> bool:
        """Whether row 0 and slot 0 may be touched: by padding of this step, or of a graph's."""
        return self.graph is not None or self.is_padded

    @property
    def tokens(self) -> int:
        return sum(row.count for row in self.rows)

    @property
    def encoded(self) -> int:
        """Tokens that the step's encoder gives: rows of k and v of the layers of cross attention."""
        return sum(row.encoder for row in self.rows if row.encoded_at is not None)


@dataclass(frozen=True, slots=True)
class RowInput:
    """One request's part of an extend, as plain numbers; the counterpart of a program's Row."""

    request: int
    tokens: int
    cached_from: int | None = None
    cached: int = 0
    more: bool = False
    encoder: int = 0


def extend_mode(rows: Sequence[RowInput], parts: Sequence[RowPlan]) -> str:
    """What an extend of these rows is called: chunked, over a prefix, or plain."""
    if any(row.more or part.live.chunking for row, part in zip(rows, parts, strict=True)):
        return "extend_chunked"
    return "extend_prefix" if any(part.known for part in parts) else "extend"


def describe(parts: Sequence[RowPlan], forward_batch: Any) -> dict[str, Any]:
    """The step as JSON-able data, for the trace and the repro script."""

    def listed(value: Any) -> Any:
        return value.tolist() if isinstance(value, torch.Tensor) else value

    names = ("seq_lens", "seq_lens_cpu", "seq_lens_sum", "req_pool_indices", "out_cache_loc", "positions")
    described = {name: listed(getattr(forward_batch, name, None)) for name in names}
    described["forward_mode"] = forward_batch.forward_mode.name
    described["requests"] = [part.live.request_id for part in parts]
    described["prefix"] = [part.prefix for part in parts]
    described["count"] = [part.count for part in parts]
    described["slots"] = [part.live.slots[: part.prefix + part.count] for part in parts]
    if getattr(forward_batch, "encoder_lens", None) is not None:
        described["encoder"] = [part.encoder for part in parts]
        described["encoded"] = [part.encoded_at is not None for part in parts]
    return described
