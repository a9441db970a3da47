"""SGLang's EAGLE steps: draft trees, verify inputs and the batches that its speculative workers prepare."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from stubs.refusal import Refused
from stubs.sglang import accepted, find, load
from stubs.sglang_batch import worker_batch
from stubs.sglang_widths import PER_REQUEST, WIDTHS, draft_extend_width, verify_width
from stubs.world import World


def draft_tree(
    world: World, batch_size: int, generator: torch.Generator, vocab: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A random draft, through SGLang's own candidate selection: (parent_list, top_scores_index, draft_tokens)."""
    select = find(
        "sglang.srt.speculative.spec_utils:select_top_k_tokens",
        "sglang.srt.speculative.eagle_utils:select_top_k_tokens",
    )
    organize = find(
        "sglang.srt.speculative.eagle_utils:organize_draft_results",
        "sglang.srt.speculative.spec_utils:organize_draft_results",
    )
    if select is None or organize is None:
        raise Refused("this release has no select_top_k_tokens or organize_draft_results to build a draft tree with")
    topk = world.spec_topk
    score_list, token_list, parent_list = [], [], []
    scores = None
    hidden = torch.zeros(batch_size, 1, device=world.device)
    for step in range(world.spec_steps):
        rows = batch_size if step == 0 else batch_size * topk
        probabilities = torch.rand(rows, topk, generator=generator).sort(dim=-1, descending=True).values
        index = torch.randint(0, vocab, (rows, topk), generator=generator)
        drawn = probabilities.to(world.device), index.to(world.device)
        _, hidden, scores, tree = select(step, *drawn, hidden, scores, topk)
        score_list.append(tree[0])
        token_list.append(tree[1])
        parent_list.append(tree[2])
    result = organize(score_list, token_list, parent_list, world.spec_draft_tokens)
    return result[0], result[1], result[2]


def build_verify_input(
    batch: Any, draft_input: Any, tree: tuple[torch.Tensor, ...], target: Any, draft: Any, world: World
) -> Any:
    """SGLang's own tail of the draft step: tree mask and EagleVerifyInput for ``batch``.

    0.5.16 on: ``build_eagle_verify_input``. Before: the draft worker's ``draft`` method itself, on a plain
    namespace that holds what the method reads of the worker.
    """
    mask_mode = load("sglang.srt.speculative.eagle_utils").TreeMaskMode.FULL_MASK
    build = find("sglang.srt.speculative.eagle_worker_common:build_eagle_verify_input")
    parent_list, top_scores_index, draft_tokens = tree
    worker = SimpleNamespace(model_runner=target)
    if build is not None:
        values = accepted(
            build,
            draft_probs=None,
            target_worker=worker,
            topk=world.spec_topk,
            num_steps=world.spec_steps,
            num_draft_tokens=world.spec_draft_tokens,
            tree_mask_mode=mask_mode,
            device=world.device,
        )
        return build(batch, draft_input, parent_list, top_scores_index, draft_tokens, **values)
    drafted = (*tree, None) if _passes_draft_probs() else tree
    draft_worker = bare_worker(
        "sglang.srt.speculative.eagle_worker_v2:EagleDraftWorker",
        req_to_token_pool=target.req_to_token_pool,
        cuda_graph_runner=None,
        draft_runner=draft or target,
        topk=world.spec_topk,
        speculative_num_steps=world.spec_steps,
        speculative_num_draft_tokens=world.spec_draft_tokens,
        draft_attn_backend=SimpleNamespace(init_forward_metadata=lambda forward_batch: None),
        draft_forward=lambda forward_batch: drafted,
        target_worker=worker,
        tree_mask_mode=mask_mode,
        device=world.device,
    )
    return draft_worker.draft(worker_batch(batch))


def _passes_draft_probs() -> bool:
    """Whether this release's drafts carry their distributions beside their tokens (0.5.14 on)."""
    return "draft_probs" in load("sglang.srt.speculative.eagle_info").EagleVerifyInput.__dataclass_fields__


def bare_worker(place: str, **state: Any) -> Any:
    """A real worker object with only ``state`` of what its constructor sets: its own methods run, on no model."""
    cls = find(place)
    if cls is None:
        raise Refused(f"this release has no {place}")
    # The subclass lets a plain attribute stand where the class has a read-only property or an abstract method.
    bare: Any = type(cls)(cls.__name__, (cls,), dict.fromkeys(state))
    bare.__abstractmethods__ = frozenset()
    worker = object.__new__(bare)
    vars(worker).update(state)
    return worker


def draft_input(
    world: World, batch_size: int, bonus: torch.Tensor, hidden_size: int, logits: torch.Tensor | None = None
) -> Any:
    """An EagleDraftInput as the target's last step leaves it: bonus tokens int32 [B], top-k float32/int64 [B, k].

    ``logits`` float32 [B, vocabulary], from which the draft starts; else it starts from token 0.
    """
    cls = load("sglang.srt.speculative.eagle_info").EagleDraftInput
    topk, device = world.spec_topk, world.device
    if logits is None:
        best = (
            torch.ones(batch_size, topk, device=device),
            torch.zeros(batch_size, topk, dtype=torch.int64, device=device),
        )
    else:
        best = logits.softmax(dim=-1).topk(topk)
    return cls(
        **accepted(
            cls,
            topk_p=best[0],
            topk_index=best[1],
            hidden_states=torch.zeros(batch_size, hidden_size, device=device),
            bonus_tokens=bonus,
            verified_id=bonus,
        )
    )


def verify_forward_batch(verify_input: Any, batch: Any, target: Any, world: World) -> Any:
    """SGLang's own preparation of the verify step; returns its ForwardBatch."""
    worker = SimpleNamespace(model_runner=target)
    prepare = find("sglang.srt.speculative.eagle_utils:eagle_prepare_for_verify")
    told = verify_width(world)
    for name in PER_REQUEST:
        if told is not None and hasattr(verify_input, name):
            setattr(verify_input, name, told)
    batch.spec_info = verify_input
    source = worker_batch(batch)
    if prepare is not None:
        return prepare(verify_input, target.req_to_token_pool, source, worker)[0]
    return verify_input.prepare_for_v2_verify(target.req_to_token_pool, source, worker)[0]


def draft_extend_forward_batch(
    batch: Any, draft: Any, world: World, accepts: torch.Tensor, predict: torch.Tensor, graph: Any = None
) -> Any:
    """SGLang's own preparation of the draft model's extend over the verified window; returns its ForwardBatch.

    ``predict`` int64 [B * width] are the tokens that the target made of the window. ``graph`` is the runner that replays it, if any: then SGLang leaves its metadata to that.
    """
    info = load("sglang.srt.speculative.eagle_info")
    by_method = hasattr(info.EagleDraftInput, "prepare_for_extend_to_fill_draft_kvcache")  # up to 0.5.13
    cls = info.EagleDraftInput if by_method else info.EagleDraftExtendInput
    width, size = world.spec_draft_tokens, len(batch.seq_lens)
    told = draft_extend_width(world)
    widths = {} if told is None else dict.fromkeys(WIDTHS, told)
    values = accepted(
        cls,
        hidden_states=torch.zeros(size * width, draft.model_config.hidden_size, device=world.device),
        num_correct_drafts=(accepts - 1).to(torch.int32),
        num_accept_tokens=accepts.to(torch.int32),
        num_front_tokens=0,
        **widths,
    )
    extend_input = cls(**values)
    source = worker_batch(batch)
    if by_method:
        method = extend_input.prepare_for_extend_to_fill_draft_kvcache
        return method(source, predict, width, draft, **accepted(method, cuda_graph_runner=graph))  # none up to 0.5.5
    prepare = find("sglang.srt.speculative.eagle_worker_common:prepare_for_draft_extend")
    if prepare is None:  # 0.5.14 and 0.5.15 have it as a method that uses nothing of its worker
        prepare = bare_worker("sglang.srt.speculative.base_spec_worker:EagleDraftWorkerBase").prepare_for_draft_extend
    extra = accepted(prepare, return_hidden_states_before_norm=False)
    return prepare(extend_input, source, predict, width, draft, graph, **extra)


def retrieve(verify_input: Any, name: str) -> torch.Tensor:
    """``retrieve_<name>`` int64 [B, width]; releases before 0.5.13 spell it ``retrive_<name>``."""
    value = getattr(verify_input, f"retrieve_{name}", None)
    return value if value is not None else getattr(verify_input, f"retrive_{name}")
