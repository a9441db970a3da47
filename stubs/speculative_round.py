"""A speculative round: a draft, the target's verify of it, and the draft model's extend over what was verified."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from stubs import draft_tree, sglang, sglang_batch, sglang_draft, sglang_memory, sglang_padding, sglang_spec, verified
from stubs.draft_steps import DraftRun
from stubs.kv_memory import kv_memory, kv_places
from stubs.live import History
from stubs.padding import UNPADDED, Padding
from stubs.plan import RowPlan, StepPlan
from stubs.planner import Planner, as_padded
from stubs.quantised import as_stored
from stubs.tiny_model import VOCAB_SIZE
from stubs.world import World


class SpeculativeRound:
    """Rounds of one server. Sources: SGLang's EAGLE, NGRAM, DFLASH and DSPARK workers."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.server = planner.server
        self.world: World = planner.world
        self.generator = planner.generator
        self.host_lengths = self._needs_host_lengths()

    def _needs_host_lengths(self) -> bool:
        """Whether host mirrors of lengths exist in speculative steps: SGLang's decision, under overlap only."""
        if not self.world.is_speculative or not self.world.overlap:
            return True
        backends = [self.server.target.attn_backend]
        if self.server.draft is not None:
            backends.append(self.server.draft.attn_backend)
        return sglang_batch.needs_cpu_seq_lens(self.server.target.server_args, backends)

    def steps(
        self,
        parts: Sequence[RowPlan],
        accepts: Sequence[int],
        *,
        draft_extend: bool,
        draft_decode: bool,
        padding: Padding = UNPADDED,
    ) -> Iterator[StepPlan]:
        """The round over the windows ``parts``, of each of which as many tokens as ``accepts`` says are kept.

        The draft is drawn, or with ``draft_decode`` what the draft model's steps come to. Without ``draft_extend`` the draft
        model's KV is written here, as its extend would have. Of a rank among several what follows the draft is padded.
        """
        world, server = self.world, self.server
        batch = self._worker_batch(parts, None)
        if world.has_draft_model:
            tree = yield from self._drafted(batch, parts, draft_decode=draft_decode)
            parents, forward_batch = verified.eagle_batch(server, batch, tree, padding)
        else:
            parents, forward_batch = verified.modelless_batch(server, batch, parts, self.generator)
        if world.is_tree:
            parts = self._with_trees(parts, parents, forward_batch.input_ids)
        mode = f"verify_{world.spec_shape}_{world.spec_mode}"
        plan = self.planner.planned(mode, parts, forward_batch, graph=server.graphs.target)
        yield as_padded(plan, padding)
        if server.draft is not None:
            if draft_extend:
                yield as_padded(self._draft_extend(parts, accepts, padding), padding)
            else:
                self._fill_draft(parts)
        for part, parent, accept in zip(parts, parents, accepts, strict=True):
            self.accept(part, draft_tree.deepest_path(parent)[:accept])

    def _with_trees(
        self, parts: Sequence[RowPlan], parents: Sequence[list[int | None]], tokens: torch.Tensor
    ) -> list[RowPlan]:
        """``parts`` with who sees whom of their nodes; ``tokens`` int64 [parts * width], and padding, are what is verified."""
        planned, width = [], self.world.spec_draft_tokens
        for part, above, drafted in zip(
            parts, parents, tokens[: len(parts) * width].view(-1, width).tolist(), strict=True
        ):
            fill = 0 if self.world.has_draft_model else draft_tree.fill(above, drafted)
            planned.append(replace(part, tree=draft_tree.ancestors(above), fill=fill))
        return planned

    def ragged(self, windows: Sequence[RowPlan], accepts: Sequence[int], lens: Sequence[int]) -> Iterator[StepPlan]:
        """The round over as many tokens of each of ``windows`` as ``lens`` says, no draft model beside; none: over all."""
        server, world = self.server, self.world
        batch = self._worker_batch(windows, None)
        counts, forward_batch, eager = verified.ragged_batch(server, batch, windows, lens, self.generator)
        starts = [sum(counts[:index]) for index in range(len(counts))]
        # Some backends look up the whole window of a request, whatever part of it is verified.
        windows = [replace(part, reach=part.prefix + part.count) for part in windows]
        parts = [replace(part, start=s, count=n) for part, s, n in zip(windows, starts, counts, strict=True)]
        mode = f"verify_{world.spec_shape}_{world.spec_mode}"
        plan = self.planner.planned(mode, parts, forward_batch, graph=server.graphs.target)
        yield replace(plan, eager=eager, is_padded=len(forward_batch.positions) > plan.tokens)
        for part, accept in zip(parts, accepts, strict=True):
            self.accept(part, list(range(accept)))

    def _worker_batch(self, parts: Sequence[RowPlan], locations: torch.Tensor | None) -> Any:
        """The ScheduleBatch that a speculative worker is handed: of a decode, with host lengths only where asked for."""
        batch = self.planner.batch("DECODE", parts, [part.prefix for part in parts], out_cache_loc=locations)
        if not self.host_lengths:
            batch.seq_lens_cpu = batch.seq_lens_sum = None
        return batch

    # --- the draft -------------------------------------------------------------------------------------------

    def _drafted(
        self, batch: Any, parts: Sequence[RowPlan], *, draft_decode: bool
    ) -> Generator[StepPlan, None, tuple[Any, ...]]:
        """Put the draft's input on ``batch``; returns the tree, drawn or what the draft model's steps come to."""
        size, hidden_size = len(parts), self.server.target.model_config.hidden_size
        bonus = torch.randint(0, VOCAB_SIZE, (size,), generator=self.generator, dtype=torch.int32).to(self.world.device)
        if not draft_decode or self.server.draft_decode is None:
            batch.spec_info = sglang_spec.draft_input(self.world, size, bonus, hidden_size)
            return sglang_spec.draft_tree(self.world, size, self.generator, VOCAB_SIZE)
        batch.spec_info = sglang_spec.draft_input(self.world, size, bonus, hidden_size, self._logits(size))
        plan = self._draft_decode(batch, parts)
        yield plan
        assert plan.draft is not None
        return tuple(plan.draft.tree)

    def _draft_decode(self, batch: Any, parts: Sequence[RowPlan]) -> StepPlan:
        """All steps of the draft over ``batch`` in one plan, a row for each branch of each request."""
        world, draft, graph = self.world, self.server.draft, self.server.graphs.draft_decode
        forward_batch = sglang_draft.draft_forward_batch(batch, batch.spec_info, draft, world, graph)
        branches = [branch for part in parts for branch in self._branches(part)]
        rows = [replace(row, start=place * row.count) for place, row in enumerate(branches)]
        steps = world.spec_steps - 1
        run = DraftRun(self.server.draft_decode, [self._logits(len(rows)) for _ in range(steps)])
        plan = self.planner.planned("draft_decode", rows, forward_batch, on_draft=True, graph=graph)
        return replace(plan, draft=run)

    def _branches(self, part: RowPlan) -> Iterator[RowPlan]:
        """A request's branches, each with the slots that it sees: the prefix's and its own."""
        live, length, steps = part.live, part.prefix, self.world.spec_steps - 1
        last = sglang_draft.branch_columns(self.world, length, self.world.spec_topk - 1)
        for branch in range(self.world.spec_topk):
            columns = sglang_draft.branch_columns(self.world, length, branch)
            tail = length % self.world.page_size if branch else 0
            own = [live.slots[column] for column in columns[:steps]]
            seen = replace(live, slots=live.slots[:length] + own, draft=list(live.draft))
            copies = tuple(live.slots[columns[0] - tail : columns[0]])
            yield RowPlan(seen, 0, steps, length, copies=copies, reach=last[-1] + 1)

    def _logits(self, rows: int) -> torch.Tensor:
        return torch.randn(rows, VOCAB_SIZE, generator=self.generator).to(self.world.device)

    # --- behind the verify -----------------------------------------------------------------------------------

    def _draft_extend(self, parts: Sequence[RowPlan], accepts: Sequence[int], padding: Padding) -> StepPlan:
        """The draft model's extend over the verified window, of which ``accepts`` tokens of each request are kept."""
        world, draft, graph = self.world, self.server.draft, self.server.graphs.draft_extend
        counts = torch.tensor(list(accepts), dtype=torch.int32, device=world.device)
        predict = torch.arange(1, 1 + len(parts) * world.spec_draft_tokens, device=world.device) % VOCAB_SIZE
        batch = self._worker_batch(parts, self.planner.locations(parts))
        make = partial(sglang_spec.draft_extend_forward_batch, batch, draft, world, counts, predict.clone(), graph)
        requests = len(parts) + padding.dead
        forward_batch = (
            sglang_padding.padded_draft(make, batch, draft, requests, world) if padding.is_needed else make()
        )
        causal = [replace(part, tree=None, fill=0) for part in parts]
        plan = self.planner.planned("draft_extend", causal, forward_batch, on_draft=True, graph=graph)
        return replace(plan, input_ids=predict)

    def _fill_draft(self, parts: Sequence[RowPlan]) -> None:
        """The draft model's KV of the window, written here because the program leaves its extend out."""
        pool = self.server.draft.token_to_kv_pool
        held = kv_memory(pool)
        for part in parts:
            loc, kept = self.planner.locations([part]), []
            for buffer, scale in zip(held, self.world.kv_scales):  # one buffer alone where KV is latent
                drawn = torch.randn(part.count, *buffer.tensor.shape[1:], generator=self.generator)
                drawn = drawn.to(sglang.DTYPES[self.world.dtype])
                buffer.tensor[loc] = buffer.encode(drawn, scale).to(loc.device)
                kept.append(as_stored(self.world, drawn, buffer.half))
            if self.world.kv_lora_rank:
                kept.append(kept[0][..., : self.world.kv_lora_rank])
            part.live.draft = [part.live.draft[0].first(part.prefix).extended(*kept)]

    def accept(self, part: RowPlan, path: list[int]) -> None:
        """Commit the accepted path: its KV moves to the front of the window, as SGLang compacts it."""
        live, base = part.live, part.prefix
        moved = [(i, node) for i, node in enumerate(path) if i != node]
        if moved:
            to = self.planner.indices([live.slots[base + i] for i, _ in moved])
            source = self.planner.indices([live.slots[base + node] for _, node in moved])
            for pool, mapping in kv_places(self.server.target.token_to_kv_pool):
                rows = (to, source) if mapping is None else (mapping[to], mapping[source])
                sglang_memory.move_kv(pool, *rows)
        for index, history in enumerate(live.target):
            keep = torch.tensor([*range(base), *(base + node for node in path)])
            live.target[index] = History(history.k[keep], history.v[keep])
        live.draft = [history.first(base + len(path)) for history in live.draft]
        live.length = base + len(path)
