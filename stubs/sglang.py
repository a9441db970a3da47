"""The SGLang names that the stubs drive, and what smooths their signatures from release to release.

This file and its two neighbours (sglang_platform, sglang_model) are the only ones that name SGLang module paths.
Where a release lacks a caller, ``Missing`` says so: the step is then unsupported there, never a bug.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from stubs.refusal import Refused
from stubs.world import World

ATTENTION = "sglang.srt.layers.attention"
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def load(path: str) -> ModuleType:
    """Import a module of the target."""
    return importlib.import_module(path)


def find(*places: str) -> Any:
    """The first of ``module:name`` that this release has, else None."""
    for place in places:
        path, name = place.split(":")
        try:
            module = load(path)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("sglang"):
                raise
            continue
        if hasattr(module, name):
            return getattr(module, name)
    return None


def accepted(function: Callable[..., Any], **values: Any) -> dict[str, Any]:
    """Those of ``values`` that ``function`` takes by name: newer releases take more."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in values.items() if name in parameters}


def version() -> str:
    """The target's own version."""
    return str(load("sglang").__version__)


# --- configuration ---------------------------------------------------------------------------------------------


def server_args(world: World, model_path: str, draft_path: str) -> Any:
    """SGLang's real ServerArgs for this world. Refused where SGLang turns the combination down."""
    cls = load("sglang.srt.server_args").ServerArgs
    wanted: dict[str, Any] = dict(
        model_path=model_path,
        tokenizer_path=model_path,
        skip_tokenizer_init=True,
        load_format="dummy",
        device=world.device,
        dtype=world.dtype,
        attention_backend=world.prefill,
        prefill_attention_backend=world.prefill,
        decode_attention_backend=world.decode,
        page_size=world.page_size,
        context_length=world.context_len,
        max_running_requests=world.max_running_requests,
        max_total_tokens=world.max_total_tokens,
        mem_fraction_static=0.3,
        disable_cuda_graph=True,
        triton_attention_num_kv_splits=2,
        disable_overlap_schedule=not world.overlap,
    )
    if world.is_speculative:
        wanted.update(
            speculative_algorithm=world.spec_algorithm,
            speculative_draft_model_path=draft_path,
            speculative_num_steps=world.spec_steps,
            speculative_eagle_topk=world.spec_topk,
            speculative_num_draft_tokens=world.spec_draft_tokens,
            speculative_attention_mode=world.spec_mode,
        )
    try:
        return cls(**wanted)
    except (ValueError, AssertionError, NotImplementedError) as error:
        raise Refused(f"ServerArgs: {error}") from error


def model_config(args: Any, model_path: str, *, is_draft: bool = False) -> Any:
    """SGLang's real ModelConfig of the model at ``model_path`` under those arguments."""
    cls = load("sglang.srt.configs.model_config").ModelConfig
    try:
        return cls.from_server_args(args, model_path=model_path, is_draft_model=is_draft)
    except (ValueError, AssertionError) as error:
        raise Refused(f"ModelConfig: {error}") from error


def one_rank_parallel_state() -> Any:
    """The ParallelState record of a single rank, where the release has one; else None."""
    cls = find("sglang.srt.distributed.parallel_state_wrapper:ParallelState")
    if cls is None:
        return None
    names = inspect.signature(cls).parameters
    values: dict[str, int] = {name: 0 for name in names if name.endswith("_rank") or name == "gpu_id"}
    values.update({name: 1 for name in names if name.endswith("_size")})
    return cls(**values)


def publish(args: Any) -> None:
    """Make ``args`` the process's configuration, by the road this release has."""
    context = find("sglang.srt.runtime_context:get_context")
    publisher = find("sglang.srt.runtime_context:publish")
    if publisher is not None:
        ranks = find("sglang.srt.runtime_context:SpawnRanks")
        extra = {} if ranks is None else {"ranks": ranks(world_rank=0, gpu_id=0)}
        publisher(args, role="scheduler", **extra)
    elif context is not None:
        context().set_server_args(args)
    setter = find("sglang.srt.server_args:set_global_server_args_for_scheduler")
    if setter is not None:
        setter(args)
    _one_rank()


def _one_rank() -> None:
    """World size one: attention tensor parallelism of 1, no distributed groups needed by the backends."""
    parallel = find("sglang.srt.runtime_context:get_parallel")
    if parallel is not None and find("sglang.srt.runtime_context:publish") is None:
        widths = dict(attn_tp_size=1, attn_tp_rank=0, attn_dcp_size=1, attn_dcp_rank=0, tp_size=1, tp_rank=0)
        override = parallel().override(**widths)
        override.__enter__()
        _ENTERED.append(override)
    elif parallel is None:
        attention_groups = load("sglang.srt.layers.dp_attention")
        attention_groups._ATTN_TP_SIZE = 1
        attention_groups._ATTN_TP_RANK = 0


_ENTERED: list[Any] = []  # overrides stay entered for the life of the process; held so that none is collected


def no_ngram_embedding() -> Any:
    """The real NgramEmbeddingManager of a model without n-gram embeddings, where the release has one; else None."""
    cls = find("sglang.srt.model_executor.model_runner_components.ngram_embedding_manager:NgramEmbeddingManager")
    return None if cls is None else cls(enabled=False, table=None, n=0)


# --- memory ----------------------------------------------------------------------------------------------------


def request_pool(world: World, row_width: int) -> Any:
    """The real ReqToTokenPool: ``req_to_token`` is int32 [max_running_requests + 1, row_width]."""
    cls = load("sglang.srt.mem_cache.memory_pool").ReqToTokenPool
    return cls(
        size=world.max_running_requests, max_context_len=row_width, device=world.device, enable_memory_saver=False
    )


def kv_pool(world: World, layers: int) -> Any:
    """The real MHATokenToKVPool: K and V [max_total_tokens + page_size, num_kv_heads, head_dim] per layer."""
    cls = load("sglang.srt.mem_cache.memory_pool").MHATokenToKVPool
    return cls(
        size=world.max_total_tokens,
        page_size=world.page_size,
        dtype=DTYPES[world.dtype],
        head_num=world.num_kv_heads,
        head_dim=world.head_dim,
        layer_num=layers,
        device=world.device,
        enable_memory_saver=False,
        **accepted(cls.__init__, enable_alt_stream=False, enable_kv_cache_copy=False),
    )


def allocator(world: World, pool: Any) -> Any:
    """The real allocator SGLang picks for this page size."""
    module = load("sglang.srt.mem_cache.allocator")
    common = dict(dtype=DTYPES[world.dtype], device=world.device, kvcache=pool, need_sort=False)
    if world.page_size == 1:
        return module.TokenToKVPoolAllocator(world.max_total_tokens, **common)
    return module.PagedTokenToKVPoolAllocator(world.max_total_tokens, page_size=world.page_size, **common)


def index_translator(runner: Any) -> Any:
    """The real KVIndexTranslator over the runner's pools, or None where the release has none."""
    cls = find("sglang.srt.mem_cache.kv_index_translator:KVIndexTranslator")
    if cls is None:
        return None
    return cls(
        req_to_token=runner.req_to_token_pool.req_to_token,
        token_to_kv_pool_allocator=runner.token_to_kv_pool_allocator,
        token_to_kv_pool=runner.token_to_kv_pool,
        page_size=runner.page_size,
        device=runner.device,
        is_draft_worker=runner.is_draft_worker,
    )


def row_extra(world: World) -> int:
    """Columns a request's row has past the context length. Source: SGLang's allocation sizing."""
    extra = 4 + world.spec_draft_tokens
    if world.is_speculative and world.page_size > 1:
        extra = max(extra, 2 * world.spec_reserve + world.page_size - 1)
    return extra


# --- backends --------------------------------------------------------------------------------------------------


def registry() -> dict[str, Callable[[Any], Any]]:
    """SGLang's own attention backend registry: name -> constructor taking a runner."""
    return dict(load(f"{ATTENTION}.attention_registry").ATTENTION_BACKENDS)


def build_backend(name: str, runner: Any) -> Any:
    """One leaf backend by SGLang's registry."""
    known = registry()
    if name not in known:
        raise Refused(f"attention backend {name!r} is not in this release's registry")
    return known[name](runner)


def build_hybrid(runner: Any, prefill: str, decode: str) -> Any:
    """The real HybridAttnBackend over two leaves, assembled as SGLang's model runner does (decode first)."""
    cls = load(f"{ATTENTION}.hybrid_attn_backend").HybridAttnBackend
    decode_backend = build_backend(decode, runner)
    prefill_backend = build_backend(prefill, runner)
    return cls(model_runner=runner, prefill_backend=prefill_backend, decode_backend=decode_backend)


def build_draft_extend_backend(runner: Any, world: World) -> Any:
    """The backend SGLang's draft worker runs its extend on: a bare leaf by name, or None (the runner's own)."""
    cls = load("sglang.srt.speculative.draft_utils").DraftBackendFactory
    values = accepted(
        cls.__init__,
        server_args=runner.server_args,
        draft_model_runner=runner,
        topk=world.spec_topk,
        speculative_num_steps=world.spec_steps,
    )
    factory = cls(**values)
    try:
        factory.create_decode_backend()  # service starts it too: where SGLang has none for the name, it refuses to start
        return factory.create_draft_extend_backend()
    except (ValueError, NotImplementedError) as error:
        raise Refused(f"draft backend: {error}") from error


def radix_attention(world: World, layer_id: int) -> Any:
    """The real RadixAttention layer of this world."""
    cls = load("sglang.srt.layers.radix_attention").RadixAttention
    return cls(
        num_heads=world.num_heads,
        head_dim=world.head_dim,
        scaling=world.head_dim**-0.5,
        num_kv_heads=world.num_kv_heads,
        layer_id=layer_id,
        logit_cap=float(world.logit_cap),
        sliding_window_size=world.sliding_window or -1,
    )


def attention_arch_mha() -> Any:
    return load("sglang.srt.configs.model_config").AttentionArch.MHA


@contextlib.contextmanager
def forward_context(backend: Any, forward_batch: Any) -> Iterator[None]:
    """Publish ``backend`` as the one that layers read: in the forward context, or up to 0.5.12 on the batch."""
    context = find("sglang.srt.model_executor.forward_context:forward_context")
    if context is None:
        forward_batch.attn_backend = backend
        yield
        return
    record = load("sglang.srt.model_executor.forward_context").ForwardContext
    with context(record(attn_backend=backend)):
        yield


# --- batches ---------------------------------------------------------------------------------------------------


def forward_mode(name: str) -> Any:
    return getattr(load("sglang.srt.model_executor.forward_batch_info").ForwardMode, name)


def spec_algorithm(name: str) -> Any:
    """SGLang's SpeculativeAlgorithm member; "" is NONE."""
    cls = load("sglang.srt.speculative.spec_info").SpeculativeAlgorithm
    return cls.from_string(name) if name else cls.NONE


def request(request_id: int, tokens: Sequence[int], vocab_size: int) -> Any:
    """A real Req with prompt ``tokens``."""
    from array import array

    cls = load("sglang.srt.managers.schedule_batch").Req
    params = load("sglang.srt.sampling.sampling_params").SamplingParams(temperature=0, max_new_tokens=8)
    ids: Any = list(tokens)
    if "array" in str(inspect.signature(cls.__init__).parameters["origin_input_ids"].annotation):
        ids = array("q", ids)
    return cls(f"r{request_id}", "", ids, params, **accepted(cls.__init__, vocab_size=vocab_size))


def schedule_batch(runner: Any, world: World, **fields: Any) -> Any:
    """A real ScheduleBatch with the fields a forward reads; every other field keeps SGLang's default."""
    cls = load("sglang.srt.managers.schedule_batch").ScheduleBatch
    return cls(
        req_to_token_pool=runner.req_to_token_pool,
        token_to_kv_pool_allocator=runner.token_to_kv_pool_allocator,
        model_config=runner.model_config,
        enable_overlap=bool(world.overlap),
        device=world.device,
        spec_algorithm=spec_algorithm(world.spec_algorithm),
        **fields,
    )


def forward_batch(batch: Any, runner: Any) -> Any:
    """SGLang's own ForwardBatch.init_new over the batch, as this release's workers call it."""
    cls = load("sglang.srt.model_executor.forward_batch_info").ForwardBatch
    source = worker_batch(batch)
    return cls.init_new(source, runner, **accepted(cls.init_new, return_hidden_states_before_norm=False))


def worker_batch(batch: Any) -> Any:
    """What a worker is handed: up to 0.5.12 a ModelWorkerBatch made from the ScheduleBatch, later the batch itself."""
    make = getattr(batch, "get_model_worker_batch", None)
    return batch if make is None else make()


def needs_forward_metadata(batch: Any) -> bool:
    """Whether the runner plans attention metadata for this batch (its caller may have done so)."""
    ask = getattr(batch, "needs_forward_metadata_init", None)
    return True if ask is None else bool(ask())


def needs_cpu_seq_lens(args: Any, backends: Sequence[Any]) -> bool:
    """SGLang's own decision on host length mirrors; releases before it always keep them."""
    decide = find("sglang.srt.managers.overlap_utils:decide_needs_cpu_seq_lens")
    if decide is None:
        return True
    values = accepted(decide, server_args=args, attn_backends=backends)
    return bool(decide(**values))


# --- speculative steps -----------------------------------------------------------------------------------------


def draft_tree(
    world: World, batch_size: int, generator: torch.Generator, vocab: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A random draft, through SGLang's own candidate selection: (parent_list, top_scores_index, draft_tokens)."""
    select = find(
        "sglang.srt.speculative.spec_utils:select_top_k_tokens", "sglang.srt.speculative.eagle_utils:select_top_k_tokens"
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
    hidden = torch.zeros(batch_size, 1)
    for step in range(world.spec_steps):
        rows = batch_size if step == 0 else batch_size * topk
        probabilities = torch.rand(rows, topk, generator=generator).sort(dim=-1, descending=True).values
        index = torch.randint(0, vocab, (rows, topk), generator=generator)
        _, hidden, scores, tree = select(step, probabilities, index, hidden, scores, topk)
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
    cls = load("sglang.srt.speculative.eagle_worker_v2").EagleDraftWorker
    state = SimpleNamespace(
        req_to_token_pool=target.req_to_token_pool,
        cuda_graph_runner=None,
        draft_runner=draft or target,
        topk=world.spec_topk,
        speculative_num_steps=world.spec_steps,
        speculative_num_draft_tokens=world.spec_draft_tokens,
        draft_attn_backend=SimpleNamespace(init_forward_metadata=lambda forward_batch: None),
        draft_forward=lambda forward_batch: tree,
        target_worker=worker,
        tree_mask_mode=mask_mode,
        device=world.device,
    )
    return cls.draft(state, worker_batch(batch))


def draft_input(world: World, batch_size: int, bonus: torch.Tensor, hidden_size: int) -> Any:
    """An EagleDraftInput as the target's last step leaves it: bonus tokens int32 [B], top-k float32/int64 [B, k]."""
    cls = load("sglang.srt.speculative.eagle_info").EagleDraftInput
    topk = world.spec_topk
    return cls(
        **accepted(
            cls,
            topk_p=torch.ones(batch_size, topk),
            topk_index=torch.zeros(batch_size, topk, dtype=torch.int64),
            hidden_states=torch.zeros(batch_size, hidden_size),
            bonus_tokens=bonus,
            verified_id=bonus,
        )
    )


def verify_forward_batch(verify_input: Any, batch: Any, target: Any) -> Any:
    """SGLang's own preparation of the verify step; returns its ForwardBatch."""
    worker = SimpleNamespace(model_runner=target)
    prepare = find("sglang.srt.speculative.eagle_utils:eagle_prepare_for_verify")
    batch.spec_info = verify_input
    source = worker_batch(batch)
    if prepare is not None:
        return prepare(verify_input, target.req_to_token_pool, source, worker)[0]
    return verify_input.prepare_for_v2_verify(target.req_to_token_pool, source, worker)[0]


def draft_extend_forward_batch(batch: Any, draft: Any, world: World, accepts: torch.Tensor) -> Any:
    """SGLang's own preparation of the draft model's extend over the verified window; returns its ForwardBatch."""
    info = load("sglang.srt.speculative.eagle_info")
    cls = getattr(info, "EagleDraftExtendInput", None) or info.EagleDraftInput
    width, size = world.spec_draft_tokens, len(batch.seq_lens)
    values = accepted(
        cls,
        hidden_states=torch.zeros(size * width, draft.model_config.hidden_size),
        num_correct_drafts=(accepts - 1).to(torch.int32),
        num_accept_tokens=accepts.to(torch.int32),
        num_tokens_per_req=width,
        num_tokens_for_logprob_per_req=width,
        num_front_tokens=0,
    )
    extend_input = cls(**values)
    predict = torch.zeros(size * width, dtype=torch.int64)
    prepare = find(
        "sglang.srt.speculative.eagle_worker_common:prepare_for_draft_extend",
        "sglang.srt.speculative.base_spec_worker:prepare_for_draft_extend",
    )
    source = worker_batch(batch)
    if prepare is not None:
        extra = accepted(prepare, return_hidden_states_before_norm=False)
        return prepare(extend_input, source, predict, width, draft, None, **extra)
    return extend_input.prepare_for_extend_to_fill_draft_kvcache(source, predict, width, draft, None)


def retrieve(verify_input: Any, name: str) -> torch.Tensor:
    """``retrieve_<name>`` int64 [B, width]; releases before 0.5.13 spell it ``retrive_<name>``."""
    value = getattr(verify_input, f"retrieve_{name}", None)
    return value if value is not None else getattr(verify_input, f"retrive_{name}")


def move_kv(pool: Any, to: torch.Tensor, source: torch.Tensor) -> None:
    """Copy KV rows within a pool, by SGLang's own plain-torch road (the other is a CUDA kernel over raw pointers)."""
    move = load("sglang.srt.mem_cache.memory_pool").move_kv_cache_native
    move(pool.k_buffer, pool.v_buffer, to, source)


def free_row(pool: Any, record: Any) -> None:
    """Give a request's row back to the ReqToTokenPool."""
    pool.free(record)


def mark_extend_range(record: Any, start: int, end: int) -> None:
    """Tell a Req how far its extend goes, by the name this release has (read for last-chunk bookkeeping only)."""
    if hasattr(record, "extend_end"):
        record.extend_end = end
