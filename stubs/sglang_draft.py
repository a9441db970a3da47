"""SGLang's draft decode: its multi-step backends, what its worker prepares, and its own loop over the steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from stubs.kernels.contract import ContractBreach
from stubs.packages.unwritten import UnwrittenError
from stubs.refusal import Refused
from stubs.sglang import accepted, find, load
from stubs.sglang_batch import forward_batch, worker_batch
from stubs.sglang_graph import hidden_mode
from stubs.sglang_memory import move_kv
from stubs.sglang_spec import bare_worker
from stubs.world import World

WORKER = "sglang.srt.speculative.eagle_worker_v2:EagleDraftWorker"


def build_draft_decode_backend(runner: Any, world: World) -> Any:
    """The multi-step backend that SGLang's factory makes for the draft's decode. Refused where it has none."""
    factory = _factory(runner, world)
    with _refusals():
        return factory.create_decode_backend()


def build_draft_extend_backend(runner: Any, world: World) -> Any:
    """The backend SGLang's draft worker runs its extend on: a bare leaf by name, or None (the runner's own)."""
    factory = _factory(runner, world)
    with _refusals():
        factory.create_decode_backend()  # service starts it too: where SGLang has none for the name, it refuses to start
        return factory.create_draft_extend_backend()


def _factory(runner: Any, world: World) -> Any:
    cls = load("sglang.srt.speculative.draft_utils").DraftBackendFactory
    values = accepted(
        cls.__init__,
        server_args=runner.server_args,
        draft_model_runner=runner,
        topk=world.spec_topk,
        speculative_num_steps=world.spec_steps,
    )
    return cls(**values)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What the factory raises for a name that it makes nothing for is SGLang's refusal."""
    try:
        yield
    except (UnwrittenError, ContractBreach):
        raise
    except (ValueError, AssertionError, NotImplementedError) as error:
        raise Refused(f"draft backend: {str(error) or 'an assertion fails when it is made'}") from error


def draft_forward_batch(batch: Any, draft_input: Any, draft: Any, world: World, graph: Any) -> Any:
    """SGLang's own preparation of the draft's decode over ``batch``; returns its ForwardBatch.

    ``graph`` is the runner that replays it, if any: SGLang asks it whether it can.
    """
    prepared = _prepared(batch, draft_input, draft, world, graph)
    prepared.input_ids = None  # the loop gives each step its own
    return prepared


def _prepared(batch: Any, draft_input: Any, draft: Any, world: World, graph: Any) -> Any:
    arguments = (
        draft_input,
        draft.req_to_token_pool,
        worker_batch(batch),
        graph,
        draft,
        world.spec_topk,
        world.spec_steps,
    )
    prepare = find("sglang.srt.speculative.eagle_worker_common:prepare_for_draft")
    if prepare is not None:
        return prepare(*arguments, **accepted(prepare, num_draft_tokens=world.spec_draft_tokens))[0]
    if not hasattr(draft_input, "prepare_for_v2_draft"):  # 0.5.14 and 0.5.15: a method that uses nothing of its worker
        worker = bare_worker("sglang.srt.speculative.base_spec_worker:EagleDraftWorkerBase")
        return worker.prepare_for_draft(*arguments)[0]
    apart = find("sglang.srt.speculative.eagle_info_v2:duplicate_prefix_tail_to_draft_branches")
    if apart is None and world.spec_topk > 1 and world.page_size > 1:
        return _branches_on_pages(batch, draft_input, draft, world)
    return draft_input.prepare_for_v2_draft(*arguments[1:])[0]


def branch_columns(world: World, length: int, branch: int) -> list[int]:
    """Which entries of its request's row hold a branch's slots, step by step; ``length`` is the request's KV.

    With several branches and pages above 1 each branch has pages of its own, whose first slots hold copies of the
    prefix's last page. Source: SGLang's ``prepare_for_draft``.
    """
    steps, page = world.spec_steps, world.page_size
    if world.spec_topk == 1 or page == 1:
        return list(range(length + branch * steps, length + (branch + 1) * steps))
    tail = length % page
    pages = -(-(tail + steps) // page)
    first = length - tail + branch * pages * page + tail
    return list(range(first, first + steps))


def _branches_on_pages(batch: Any, draft_input: Any, draft: Any, world: World) -> Any:
    """Up to 0.5.12 service lays such branches out in its older worker, whose preparation is one with its allocation.

    The layout is the same as later; the slots are the row's, as everywhere here.
    """
    lengths: list[int] = batch.seq_lens.tolist()
    rows = draft.req_to_token_pool.req_to_token[batch.req_pool_indices].to(torch.int64)
    locations, to, source = [], [], []
    for row, length in zip(rows, lengths, strict=True):
        tail = length % world.page_size
        for branch in range(world.spec_topk):
            columns = branch_columns(world, length, branch)
            locations.append(row[columns])
            if branch and tail:
                to.append(row[columns[0] - tail : columns[0]])
                source.append(row[length - tail : length])
    if to:
        move_kv(draft.token_to_kv_pool, torch.cat(to), torch.cat(source))
    batch.out_cache_loc = torch.cat(locations)
    draft_input.num_tokens_per_req = draft_input.num_tokens_for_logprob_per_req = world.spec_topk
    draft_input.positions = batch.seq_lens.repeat_interleave(world.spec_topk, dim=0)
    batch.spec_info = draft_input
    batch.capture_hidden_mode = hidden_mode("LAST")
    return forward_batch(batch, draft)


def draft_forward(model: Any, backend: Any, batch: Any, world: World) -> Any:
    """SGLang's own loop over the draft's steps; ``model`` runs one of them. Returns (parents, top scores, tokens).

    ``batch`` is planned already; its locations and positions are those of the last step afterwards.
    """
    none = torch.empty((0, 0), dtype=torch.int64, device=world.device)  # chains go the same road as trees
    worker = bare_worker(
        WORKER,
        draft_runner=model,
        draft_attn_backend=backend,
        server_args=model.server_args,
        device=world.device,
        topk=world.spec_topk,
        speculative_num_steps=world.spec_steps,
        speculative_num_draft_tokens=world.spec_draft_tokens,
        hot_token_id=None,
        index_share_for_mtp_iteration=False,
        seed_dsa_topk_from_draft_extend=False,
        _topk1_parents_prealloc=none,
        _topk1_score_indices_prealloc=none,
    )
    return tuple(worker.draft_forward(batch)[:3])


def mark_planned(batch: Any) -> None:
    """Tell a batch that its metadata is there, where the release's batches can be told."""
    mark = getattr(batch, "mark_forward_metadata_ready", None)
    if mark is not None:
        mark()


class ModelOutput(NamedTuple):
    """What a model's forward gives, as far as the draft's loop reads it: by name, or as a pair in old releases."""

    logits_output: Any
    can_run_cuda_graph: bool = False


def logits_output(logits: torch.Tensor, hidden: torch.Tensor) -> ModelOutput:
    """Logits [branches, vocabulary] and hidden states [branches, hidden size] as a model gives them."""
    return ModelOutput(SimpleNamespace(next_token_logits=logits, hidden_states=hidden))
