"""A small scheduler: keeps live requests and makes each step's ForwardBatch as SGLang's scheduler and workers would."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from stubs import draft_tree, sglang, sglang_batch, sglang_draft, sglang_memory, sglang_padding, sglang_spec, verified
from stubs.draft_steps import DraftRun
from stubs.graph_runner import GraphRunner
from stubs.kv_memory import kv_memory, kv_places
from stubs.live import History, LiveRequest
from stubs.padding import UNPADDED, Padding
from stubs.plan import RowInput, RowPlan, StepPlan, describe, extend_mode
from stubs.quantised import as_stored
from stubs.slots import SlotKeeper
from stubs.tap import Tap
from stubs.tiny_model import VOCAB_SIZE
from stubs.world import World


class Scheduler:
    """Live requests of one server. Each method yields the steps of one op; send each step's taps to ``commit``.

    Idle, finish and retract need no forward of their own except idle. Sources: SGLang's scheduler, its
    ``prepare_for_extend/decode/idle``, ``mix_with_running`` and the EAGLE workers.
    """

    def __init__(self, server: Any, seed: int) -> None:
        self.server = server
        self.world: World = server.world
        self.live: dict[int, LiveRequest] = {}
        self.retracted: set[int] = set()
        self.generator = torch.Generator().manual_seed(seed)
        runners = [server.target] + ([server.draft] if server.draft is not None else [])
        self.slots = SlotKeeper(self.world, runners, seed)
        self.host_lengths = self._needs_host_lengths()

    def _needs_host_lengths(self) -> bool:
        """Whether host mirrors of lengths exist in speculative steps: SGLang's decision, under overlap only."""
        if not self.world.is_speculative or not self.world.overlap:
            return True
        backends = [self.server.target.attn_backend]
        if self.server.draft is not None:
            backends.append(self.server.draft.attn_backend)
        return sglang_batch.needs_cpu_seq_lens(self.server.target.server_args, backends)

    # --- extend, mixed ---------------------------------------------------------------------------------------

    def extend(self, rows: Sequence[RowInput]) -> Iterator[StepPlan]:
        parts = self._admit(rows)
        yield self._extend_step(extend_mode(rows, parts), parts, on_draft=False)
        if self.server.draft is not None:
            yield self._extend_step("draft_prefill", parts, on_draft=True)
        self._settle(parts, rows)

    def mixed(self, rows: Sequence[RowInput], requests: Sequence[int]) -> Iterator[StepPlan]:
        parts = self._admit(rows)
        running = [self.live[request] for request in requests]
        for live in running:
            self.slots.evict(live)
            self.slots.reserve(live, live.length + 1)
        offset = sum(part.count for part in parts)
        decoding = [RowPlan(live, offset + i, 1, live.length) for i, live in enumerate(running)]
        yield self._extend_step("mixed", [*parts, *decoding], on_draft=False, decoding=len(decoding))
        self._settle(parts, rows)
        for live in running:
            live.length += 1

    def _admit(self, rows: Sequence[RowInput]) -> list[RowPlan]:
        parts, start = [], 0
        for row in rows:
            live = self.live.get(row.request)
            if live is None:
                prompt = [
                    int(t) for t in torch.randint(0, VOCAB_SIZE, (row.cached + row.tokens,), generator=self.generator)
                ]
                live = self.live[row.request] = self.slots.admit(row.request, prompt, VOCAB_SIZE)
                live.target = [self._empty() for _ in range(self.world.num_layers)]
                live.draft = [self._empty()] if self.server.draft is not None else []
                self.retracted.discard(row.request)
                if row.cached_from is not None and row.cached:
                    self.slots.share(live, self.live[row.cached_from], row.cached)
            self.slots.reserve(live, live.length + row.tokens)
            parts.append(RowPlan(live, start, row.tokens, live.length))
            start += row.tokens
        return parts

    def _settle(self, parts: Sequence[RowPlan], rows: Sequence[RowInput]) -> None:
        for part, row in zip(parts, rows, strict=True):
            part.live.length = part.prefix + part.count
            part.live.chunking = row.more
            part.live.decoded = 0
            part.live.protected = self.world.known(part.live.length)

    def _extend_step(self, mode: str, parts: Sequence[RowPlan], *, on_draft: bool, decoding: int = 0) -> StepPlan:
        lengths = [part.prefix + part.count for part in parts]
        batch = self._batch(
            "MIXED" if decoding else "EXTEND",
            parts,
            lengths,
            prefix_lens=[part.prefix for part in parts],
            extend_lens=[part.count for part in parts],
            extend_num_tokens=sum(part.count for part in parts),
            extend_logprob_start_lens=[0] * len(parts),
            out_cache_loc=self._locations(parts),
        )
        for part, length in zip(parts, lengths, strict=True):
            sglang_batch.mark_extend_range(part.live.record, part.prefix, length)
        batch.decoding_reqs = [part.live.record for part in parts[len(parts) - decoding :]] if decoding else None
        return self._step(mode, parts, batch, on_draft=on_draft)

    # --- decode, idle ----------------------------------------------------------------------------------------

    def decode(self, requests: Sequence[int], padding: Padding = UNPADDED) -> Iterator[StepPlan]:
        running = [self.live[request] for request in requests]
        for live in running:
            self.slots.evict(live)
            self.slots.reserve(live, live.length + 1)
        parts = [RowPlan(live, i, 1, live.length) for i, live in enumerate(running)]
        batch = self._batch("DECODE", parts, [part.prefix + 1 for part in parts], out_cache_loc=self._locations(parts))
        yield self._padded("decode", parts, batch, padding, graph=self.server.graphs.target)
        for live in running:
            live.length += 1

    def idle(self, padding: Padding = UNPADDED) -> Iterator[StepPlan]:
        yield self._padded("idle", [], self._batch("IDLE", [], [], out_cache_loc=self._locations([])), padding)

    # --- verify, draft extend --------------------------------------------------------------------------------

    def verify(
        self, requests: Sequence[int], accepts: Sequence[int], draft_extend: bool, draft_decode: bool = False
    ) -> Iterator[StepPlan]:
        """Target verify of a fresh draft, then (on the draft model) the extend over the verified window.

        The draft is drawn, or with ``draft_decode`` what the draft model's steps come to.
        """
        world, width, server = self.world, self.world.spec_draft_tokens, self.server
        running = [self.live[request] for request in requests]
        for live in running:
            self.slots.evict(live)
            self.slots.reserve(live, live.length + 2 * world.spec_reserve, whole_pages=True)
        parts = [RowPlan(live, i * width, width, live.length) for i, live in enumerate(running)]
        batch = self._worker_batch(parts, None)
        if world.has_draft_model:
            tree = yield from self._drafted(batch, parts, draft_decode)
            parents, forward_batch = verified.eagle_batch(server, batch, tree)
        else:
            parents, forward_batch = verified.modelless_batch(server, batch, parts, self.generator)
        if world.is_tree:
            ancestors = map(draft_tree.ancestors, parents)
            parts = [replace(part, tree=mask) for part, mask in zip(parts, ancestors, strict=True)]
        mode = f"verify_{world.spec_shape}_{world.spec_mode}"
        yield self._planned(mode, parts, forward_batch, graph=server.graphs.target)
        if server.draft is not None:
            if draft_extend:
                yield self._draft_extend(parts, accepts)
            else:
                self._fill_draft(parts)
        for part, parent, accept in zip(parts, parents, accepts, strict=True):
            self._accept(part, draft_tree.deepest_path(parent)[:accept])

    def _worker_batch(self, parts: Sequence[RowPlan], locations: torch.Tensor | None) -> Any:
        """The ScheduleBatch that a speculative worker is handed: of a decode, with host lengths only where asked for."""
        batch = self._batch("DECODE", parts, [part.prefix for part in parts], out_cache_loc=locations)
        if not self.host_lengths:
            batch.seq_lens_cpu = batch.seq_lens_sum = None
        return batch

    def _drafted(
        self, batch: Any, parts: Sequence[RowPlan], draft_decode: bool
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

    def _draft_extend(self, parts: Sequence[RowPlan], accepts: Sequence[int]) -> StepPlan:
        """The draft model's extend over the verified window, of which ``accepts`` tokens of each request are kept."""
        world, draft, graph = self.world, self.server.draft, self.server.graphs.draft_extend
        counts = torch.tensor(list(accepts), dtype=torch.int32, device=world.device)
        predict = torch.arange(1, 1 + len(parts) * world.spec_draft_tokens, device=world.device) % VOCAB_SIZE
        batch = self._worker_batch(parts, self._locations(parts))
        forward_batch = sglang_spec.draft_extend_forward_batch(batch, draft, world, counts, predict.clone(), graph)
        causal = [replace(part, tree=None) for part in parts]
        plan = self._planned("draft_extend", causal, forward_batch, on_draft=True, graph=graph)
        return replace(plan, input_ids=predict)

    def _draft_decode(self, batch: Any, parts: Sequence[RowPlan]) -> StepPlan:
        """All steps of the draft over ``batch`` in one plan, a row for each branch of each request."""
        world, draft, graph = self.world, self.server.draft, self.server.graphs.draft_decode
        forward_batch = sglang_draft.draft_forward_batch(batch, batch.spec_info, draft, world, graph)
        branches = [branch for part in parts for branch in self._branches(part)]
        rows = [replace(row, start=place * row.count) for place, row in enumerate(branches)]
        steps = world.spec_steps - 1
        run = DraftRun(self.server.draft_decode, [self._logits(len(rows)) for _ in range(steps)])
        plan = self._planned("draft_decode", rows, forward_batch, on_draft=True, graph=graph)
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

    def _fill_draft(self, parts: Sequence[RowPlan]) -> None:
        """The draft model's KV of the window, written here because the program leaves its extend out."""
        pool = self.server.draft.token_to_kv_pool
        held = kv_memory(pool)
        for part in parts:
            loc, kept = self._locations([part]), []
            for buffer, scale in zip(held, self.world.kv_scales):  # one buffer alone where KV is latent
                drawn = torch.randn(part.count, *buffer.tensor.shape[1:], generator=self.generator)
                drawn = drawn.to(sglang.DTYPES[self.world.dtype])
                buffer.tensor[loc] = buffer.encode(drawn, scale).to(loc.device)
                kept.append(as_stored(self.world, drawn, buffer.half))
            if self.world.kv_lora_rank:
                kept.append(kept[0][..., : self.world.kv_lora_rank])
            part.live.draft = [part.live.draft[0].first(part.prefix).extended(*kept)]

    def _accept(self, part: RowPlan, path: list[int]) -> None:
        """Commit the accepted path: its KV moves to the front of the window, as SGLang compacts it."""
        live, base = part.live, part.prefix
        moved = [(i, node) for i, node in enumerate(path) if i != node]
        if moved:
            to = self._indices([live.slots[base + i] for i, _ in moved])
            source = self._indices([live.slots[base + node] for _, node in moved])
            for pool, mapping in kv_places(self.server.target.token_to_kv_pool):
                rows = (to, source) if mapping is None else (mapping[to], mapping[source])
                sglang_memory.move_kv(pool, *rows)
        for index, history in enumerate(live.target):
            keep = torch.tensor([*range(base), *(base + node for node in path)])
            live.target[index] = History(history.k[keep], history.v[keep])
        live.draft = [history.first(base + len(path)) for history in live.draft]
        live.length = base + len(path)

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
        for request in requests:
            self.slots.release(self.live.pop(request))
            self.retracted.add(request)

    # --- shared ----------------------------------------------------------------------------------------------

    def commit(self, plan: StepPlan, taps: Sequence[Tap]) -> None:
        """Record what a step wrote, so that later steps' references read it."""
        heads = self.world.num_kv_heads
        for tap in taps:
            k, v = (tensor.detach().cpu().unflatten(1, (heads, -1)) for tensor in (tap.k.flatten(1), tap.v.flatten(1)))
            for row in plan.rows:
                histories = row.live.draft if plan.on_draft else row.live.target
                rows = slice(row.start, row.start + row.count)
                before = histories[tap.layer_index].first(row.prefix)
                kept = as_stored(self.world, k[rows].clone(), "K"), as_stored(self.world, v[rows].clone(), "V")
                histories[tap.layer_index] = before.extended(*kept)

    def _empty(self) -> History:
        heads, dtype = self.world.num_kv_heads, sglang.DTYPES[self.world.dtype]
        return History(*(torch.empty(0, heads, dim, dtype=dtype) for dim in (self.world.head_dim, self.world.v_dim)))

    def _batch(self, mode: str, parts: Sequence[RowPlan], lengths: list[int], **fields: Any) -> Any:
        """A real ScheduleBatch; seq_lens int64 on device with host mirror and sum, orig_seq_lens int32."""
        tokens, device = sum(part.count for part in parts), self.world.device
        return sglang_batch.schedule_batch(
            self.server.target,
            self.world,
            reqs=[part.live.record for part in parts],
            forward_mode=sglang_batch.forward_mode(mode),
            input_ids=torch.randint(0, VOCAB_SIZE, (tokens,), generator=self.generator).to(device),
            req_pool_indices=self._indices([part.live.row for part in parts]),
            seq_lens=torch.tensor(lengths, dtype=torch.int64, device=device),
            seq_lens_cpu=torch.tensor(lengths, dtype=torch.int64),
            seq_lens_sum=sum(lengths),
            orig_seq_lens=torch.tensor(lengths, dtype=torch.int32, device=device),
            multimodal_inputs=[None] * len(parts),
            **fields,
        )

    def _locations(self, parts: Sequence[RowPlan]) -> torch.Tensor:
        """int64 [tokens] on device: the slots that a step's new tokens are written to."""
        return self._indices([s for part in parts for s in part.live.slots[part.prefix : part.prefix + part.count]])

    def _indices(self, values: Sequence[int]) -> torch.Tensor:
        """int64 on device, as SGLang holds rows and slots."""
        return torch.tensor(values, dtype=torch.int64, device=self.world.device)

    def _padded(
        self,
        mode: str,
        parts: Sequence[RowPlan],
        batch: Any,
        padding: Padding,
        *,
        graph: GraphRunner | None = None,
    ) -> StepPlan:
        """A step of the target under data-parallel attention: eager, and padded to what the fullest rank has."""
        if not padding.is_needed:
            return self._step(mode, parts, batch, graph=graph)
        rows, beside_extend = len(parts) + padding.dead, padding.beside_extend
        forward_batch = sglang_padding.padded_batch(batch, self.server.target, rows, beside_extend=beside_extend)
        name = f"{mode}_{'padded' if forward_batch.forward_mode.name == mode.upper() else 'relabelled'}"
        dead = forward_batch.batch_size - len(parts)
        return replace(self._planned(name, parts, forward_batch), padding=dead, is_padded=True)

    def _step(
        self,
        mode: str,
        parts: Sequence[RowPlan],
        batch: Any,
        *,
        on_draft: bool = False,
        graph: GraphRunner | None = None,
    ) -> StepPlan:
        runner = self.server.draft if on_draft else self.server.target
        input_ids = batch.input_ids.clone()
        forward_batch = sglang_batch.forward_batch(batch, runner)
        return replace(self._planned(mode, parts, forward_batch, on_draft=on_draft, graph=graph), input_ids=input_ids)

    def _planned(
        self,
        mode: str,
        parts: Sequence[RowPlan],
        forward_batch: Any,
        *,
        on_draft: bool = False,
        graph: GraphRunner | None = None,
    ) -> StepPlan:
        """``graph`` is what replays steps of this kind; SGLang's rule says whether it replays this one."""
        runner = self.server.draft if on_draft else self.server.target
        described = describe(parts, forward_batch)
        if graph is None or not graph.can_run_graph(forward_batch):
            return StepPlan(mode, on_draft, runner, forward_batch, tuple(parts), described)
        return StepPlan(f"{mode}_graph", on_draft, runner, forward_batch, tuple(parts), described, graph)
