"""SGLang's requests and batches: ScheduleBatch and ForwardBatch as this release's scheduler and workers make them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from stubs.sglang import accepted, find, load, spec_algorithm
from stubs.world import World


def forward_mode(name: str) -> Any:
    return getattr(load("sglang.srt.model_executor.forward_batch_info").ForwardMode, name)


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


def mark_extend_range(record: Any, start: int, end: int) -> None:
    """Tell a Req how far its extend goes, by the name this release has (read for last-chunk bookkeeping only)."""
    if hasattr(record, "extend_end"):
        record.extend_end = end
