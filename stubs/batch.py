"""A small scheduler: keeps live requests and makes each step's ForwardBatch as SGLang's scheduler and workers would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from stubs import sglang, sglang_batch, sglang_encoder
from stubs.layer import layer_of
from stubs.live import History, LiveRequest
from stubs.padding import UNPADDED, Padding
from stubs.plan import RowInput, RowPlan, StepPlan, extend_mode
from stubs.planner import Planner
from stubs.quantised import as_stored
from stubs.slots import SlotKeeper
from stubs.speculative_round import SpeculativeRound
from stubs.tap import Tap
from stubs.tiny_model import VOCAB_SIZE
from stubs.world import World


class Scheduler:
    """Live requests of one server. Each method yields the steps of one op; send each step's taps to ``commit``.

    Finish and retract run no forward. Sources: SGLang's scheduler, its ``prepare_for_extend/decode/idle`` and
    ``mix_with_running``.
    """

    def __init__(self, server: Any, seed: int) -> None:
        self.server = server
        self.world: World = server.world
        self.live: dict[int, LiveRequest] = {}
        self.generator = torch.Generator().manual_seed(seed)
        runners = [server.target] + ([server.draft] if server.draft is not None else [])
        self.slots = SlotKeeper(self.world, runners, seed)
        self.planner = Planner(server, self.generator)
        self.speculative = SpeculativeRound(self.planner)

    # --- extend, mixed ---------------------------------------------------------------------------------------

    def extend(self, rows: Sequence[RowInput]) -> Iterator[StepPlan]:
        """Prompts, or chunks of them, on the target and on the draft model where there is one."""
        parts = self._admit(rows)
        yield self._extend_step(extend_mode(rows, parts), parts, on_draft=False)
        if self.server.draft is not None:
            yield self._extend_step("draft_prefill", parts, on_draft=True)
        self._settle(parts, rows)

    def mixed(self, rows: Sequence[RowInput], requests: Sequence[int]) -> Iterator[StepPlan]:
        """An extend of ``rows``, and behind them a decode of ``requests``, in one forward."""
        parts = self._admit(rows)
        running = self._running(requests, 1)
        offset = sum(part.count for part in parts)
        decoding = [RowPlan(live, offset + i, 1, live.length) for i, live in enumerate(running)]
        yield self._extend_step("mixed", [*parts, *decoding], on_draft=False, decoding=len(decoding))
        self._settle(parts, rows)
        for live in running:
            live.length += 1

    def _admit(self, rows: Sequence[RowInput]) -> list[RowPlan]:
        parts, start, encoded = [], 0, 0
        for row in rows:
            live = self.live.get(row.request)
            if live is None:
                prompt = [
                    int(t) for t in torch.randint(0, VOCAB_SIZE, (row.cached + row.tokens,), generator=self.generator)
                ]
                live = self.live[row.request] = self.slots.admit(row.request, prompt, VOCAB_SIZE)
                live.encoder = row.encoder
                sglang_encoder.give_encoder(live.record, row.encoder)
                live.target = [self._empty(live, index) for index in range(self.world.num_layers)]
                live.draft = [self._empty(live, 0)] if self.server.draft is not None else []
                if row.cached_from is not None and row.cached:
                    self.slots.share(live, self.live[row.cached_from], row.cached)
            self.slots.reserve(live, live.length + row.tokens)
            # The encoder runs once for a request, where nothing of it is known.
            new, at = (live.encoder, encoded) if live.encoder and not live.length else (0, None)
            parts.append(RowPlan(live, start, row.tokens - new, live.length + new, encoder=live.encoder, encoded_at=at))
            start, encoded = start + row.tokens - new, encoded + new
        return parts

    def _settle(self, parts: Sequence[RowPlan], rows: Sequence[RowInput]) -> None:
        for part, row in zip(parts, rows, strict=True):
            part.live.length = part.prefix + part.count
            part.live.chunking = row.more
            part.live.decoded = 0
            part.live.protected = self.world.known(part.live.length)

    def _extend_step(self, mode: str, parts: Sequence[RowPlan], *, on_draft: bool, decoding: int = 0) -> StepPlan:
        lengths = [part.prefix + part.count for part in parts]
        batch = self.planner.batch(
            "MIXED" if decoding else "EXTEND",
            parts,
            lengths,
            prefix_lens=[part.known for part in parts],
            extend_lens=[length - part.known for part, length in zip(parts, lengths, strict=True)],
            extend_num_tokens=sum(lengths) - sum(part.known for part in parts),
            extend_logprob_start_lens=[0] * len(parts),
            out_cache_loc=self.planner.locations(parts),
        )
        for part, length in zip(parts, lengths, strict=True):
            sglang_batch.mark_extend_range(part.live.record, part.prefix, length)
        if self.world.encoder_decoder:
            sglang_encoder.without_encoders(batch, [part.encoder for part in parts], [part.count for part in parts])
        batch.decoding_reqs = [part.live.record for part in parts[len(parts) - decoding :]] if decoding else None
        graph = None if on_draft else self.server.graphs.prefill
        return self.planner.step(mode, parts, batch, on_draft=on_draft, graph=graph)

    # --- decode, idle ----------------------------------------------------------------------------------------

    def decode(self, requests: Sequence[int], padding: Padding = UNPADDED) -> Iterator[StepPlan]:
        """A token for each request."""
        running = self._running(requests, 1)
        parts = [RowPlan(live, i, 1, live.length, encoder=live.encoder) for i, live in enumerate(running)]
        lengths = [part.prefix + 1 - part.encoder for part in parts]
        batch = self.planner.batch("DECODE", parts, lengths, out_cache_loc=self.planner.locations(parts))
        if self.world.encoder_decoder:
            sglang_encoder.tell_encoders(batch, [part.encoder for part in parts])
        yield self.planner.padded("decode", parts, batch, padding, graph=self.server.graphs.target)
        for live in running:
            live.length += 1

    def idle(self, padding: Padding = UNPADDED) -> Iterator[StepPlan]:
        """A step without requests, as a rank takes it while others work."""
        batch = self.planner.batch("IDLE", [], [], out_cache_loc=self.planner.locations([]))
        yield self.planner.padded("idle", [], batch, padding)

    # --- verify ----------------------------------------------------------------------------------------------

    def verify(
        self,
        requests: Sequence[int],
        accepts: Sequence[int],
        draft_extend: bool,
        draft_decode: bool = False,
        lens: Sequence[int] = (),
        padding: Padding = UNPADDED,
    ) -> Iterator[StepPlan]:
        """Target verify of a fresh draft, then (on the draft model) the extend over the verified window.

        The draft is drawn, or with ``draft_decode`` what the draft model's steps come to. Of a ragged world ``lens`` are the
        tokens of each request to verify, none: all. ``padding`` is that of EAGLE's verify and of its draft model's extend.
        """
        width = self.world.spec_draft_tokens
        running = self._running(requests, 2 * self.world.spec_reserve, whole_pages=True)
        parts = [RowPlan(live, i * width, width, live.length) for i, live in enumerate(running)]
        if self.world.is_ragged:
            yield from self.speculative.ragged(parts, accepts, lens)
            return
        drafts = {"draft_extend": draft_extend, "draft_decode": draft_decode}
        yield from self.speculative.steps(parts, accepts, **drafts, padding=padding)

    # --- leaving ---------------------------------------------------------------------------------------------

    def finish(self, requests: Sequence[int], keep: bool) -> None:
        """Requests end and give back their rows. With ``keep``, whole pages that the prefix cache knows stay."""
        for request in requests:
            live = self.live[request]
            known = self.world.known(live.length, live.protected) if keep else 0
            self.slots.release(live, keep=known)
            live.length = known
            if not known:
                del self.live[request]

    def retract(self, requests: Sequence[int]) -> None:
        """Requests give back all they hold; an extend begins each anew."""
        for request in requests:
            self.slots.release(self.live.pop(request))

    # --- shared ----------------------------------------------------------------------------------------------

    def commit(self, plan: StepPlan, taps: Sequence[Tap]) -> None:
        """Record what a step wrote, so that later steps' references read it."""
        heads = self.world.num_kv_heads
        for tap in taps:
            k, v = (tensor.detach().cpu().unflatten(1, (heads, -1)) for tensor in (tap.k.flatten(1), tap.v.flatten(1)))
            for row in plan.rows:
                histories = row.live.draft if plan.on_draft else row.live.target
                layer = layer_of(self.world, tap.layer_index, on_draft=plan.on_draft)
                rows = row.given(layer)
                before = histories[tap.layer_index].first(row.prefix)
                kept = as_stored(self.world, k[rows].clone(), "K"), as_stored(self.world, v[rows].clone(), "V")
                histories[tap.layer_index] = before.extended(*kept)

    def _running(self, requests: Sequence[int], tokens: int, *, whole_pages: bool = False) -> list[LiveRequest]:
        """The requests, each with slots for so many more tokens, and without those that have left its window."""
        running = [self.live[request] for request in requests]
        for live in running:
            self.slots.evict(live)
            self.slots.reserve(live, live.length + tokens, whole_pages=whole_pages)
        return running

    def _empty(self, live: LiveRequest, index: int) -> History:
        """Of a new request, whose encoder is no business of most layers: 0 in its place."""
        heads, dtype = self.world.num_kv_heads, sglang.DTYPES[self.world.dtype]
        length = 0 if layer_of(self.world, index).is_cross else live.encoder
        shapes = ((length, heads, dim) for dim in (self.world.head_dim, self.world.v_dim))
        return History(*(torch.zeros(shape, dtype=dtype) for shape in shapes))
