"""How this release captures and replays CUDA graphs: its capture mode, its batches, its metadata methods.

Up to 0.5.12 a backend has one method for capture and one for replay; from 0.5.13 on one method that runs outside of the
graph, and one whose operations the graph repeats.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from stubs import sglang_dflash, sglang_ngram
from stubs.sglang import accepted, find, load
from stubs.sglang_batch import forward_mode
from stubs.world import World


@contextlib.contextmanager
def capture_mode() -> Iterator[None]:
    """SGLang's own mark that a graph is being captured, which its pools and backends ask for."""
    mode = find(
        "sglang.srt.model_executor.runner_utils.capture_mode:model_capture_mode",
        "sglang.srt.model_executor.cuda_graph_runner:model_capture_mode",
    )
    with mode():
        yield


def lengths_dtype() -> torch.dtype:
    """Of a graph runner's buffer of lengths: int32 up to 0.5.13, int64 from the release on that keeps buffers apart."""
    apart = find("sglang.srt.model_executor.runner_utils.buffers:DecodeInputBuffers")
    return torch.int32 if apart is None else torch.int64


def fill_value(backend: Any) -> int:
    """The length of padded rows. A draft's several steps answer by their first."""
    steps = getattr(backend, "attn_backends", None)
    return int((steps[0] if steps else backend).get_cuda_graph_seq_len_fill_value())


def captures_draft_extend(backend: Any) -> bool:
    """Whether the draft worker captures the extend of such a backend: its own method lists the classes that it does."""
    worker = load("sglang.srt.speculative.eagle_worker_v2").EagleDraftWorker
    method = getattr(worker, "_capture_cuda_graphs", None) or worker.init_cuda_graphs
    source = inspect.getsource(method)
    return any(cls.__name__ in source for cls in type(backend).__mro__[:-1] if cls.__name__ != "AttentionBackend")


def draft_extend_rows(world: World) -> int:
    """Rows of a request in the release's own graph of the draft's extend: one for each drafted token.

    Up to 0.5.12 one for each draft step and one, which is another number over trees; these go to a worker of an older
    kind there, which fills up the rest.
    """
    return world.spec_steps + 1 if _has_a_row_a_step() else world.spec_draft_tokens


@functools.cache
def _has_a_row_a_step() -> bool:
    runner = load("sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner").EAGLEDraftExtendCudaGraphRunner
    return "self.speculative_num_steps + 1" in inspect.getsource(runner.__init__)


@functools.cache
def asks_for_width() -> bool:
    """Whether the release's graph runners decline a batch whose requests have another number of rows than captured."""
    runner = load("sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner").EAGLEDraftExtendCudaGraphRunner
    rule = getattr(runner, "can_run_graph", None) or runner.can_run
    return "num_tokens_per_req" in inspect.getsource(rule)


def capture_batch(runner: Any, backend: Any, mode: str, **fields: Any) -> Any:
    """A ForwardBatch over a graph runner's own buffers, as SGLang's runners make them."""
    cls = load("sglang.srt.model_executor.forward_batch_info").ForwardBatch
    values = accepted(
        cls,
        forward_mode=forward_mode(mode),
        global_forward_mode=forward_mode(mode),
        return_logprob=False,
        spec_algorithm=runner.spec_algorithm,
        req_to_token_pool=runner.req_to_token_pool,
        token_to_kv_pool=runner.token_to_kv_pool,
        attn_backend=backend,
        can_run_decode_cuda_graph=True,
        **fields,
    )
    batch = cls(**values)
    bind = getattr(runner.kv_index_translator, "bind_runner_slots", None)
    if bind is not None:
        bind(batch)
    return batch


def plan_capture(backend: Any, batch: Any) -> None:
    """The backend's metadata of a batch that is about to be captured."""
    if hasattr(backend, "init_forward_metadata_out_graph"):
        backend.init_forward_metadata_out_graph(batch, in_capture=True)
    elif hasattr(backend, "attn_backends"):
        backend.init_forward_metadata_capture_cuda_graph(batch)
    else:
        backend.init_forward_metadata_capture_cuda_graph(
            batch.batch_size,
            len(batch.positions),
            batch.req_pool_indices,
            batch.seq_lens,
            batch.encoder_lens,
            batch.forward_mode,
            batch.spec_info,
        )


def plan_in_graph(backend: Any, batch: Any) -> None:
    """What of the metadata the graph itself computes; nothing up to 0.5.12."""
    plan = getattr(backend, "init_forward_metadata_in_graph", None)
    if plan is not None:
        plan(batch)


def after_warm_up(backend: Any) -> None:
    """The backend's own hook between a warm-up run and the capture, where it has one."""
    hook = getattr(backend, "on_after_cuda_graph_warmup", None)
    if hook is not None:
        hook()


def plan_replay(backend: Any, view: Any) -> None:
    """The backend's metadata of a padded batch that is about to be replayed; ``view`` as ``replay_view`` makes it."""
    if hasattr(backend, "init_forward_metadata_out_graph"):
        backend.init_forward_metadata_out_graph(view)
    elif hasattr(backend, "attn_backends"):
        backend.init_forward_metadata_replay_cuda_graph(view, view.batch_size)
    else:
        backend.init_forward_metadata_replay_cuda_graph(
            view.batch_size,
            view.req_pool_indices,
            view.seq_lens,
            view.seq_lens_sum,
            view.encoder_lens,
            view.forward_mode,
            view.spec_info,
            seq_lens_cpu=view.seq_lens_cpu,
        )


def replay_view(batch: Any, buffers: Any, size: int, tokens: int, fill: int, mode: str) -> Any:
    """What a target's runner plans a replay from: SGLang's own view (0.5.13 on), or the same fields.

    ``buffers`` are the runner's; ``size`` requests of ``tokens`` rows in all are replayed, padding included.
    """
    build = find(
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner:build_replay_fb_view",
        "sglang.srt.model_executor.cuda_graph_runner:build_replay_fb_view",
    )
    values = {
        "forward_batch": batch,
        "buffers": buffers,
        "bs": size,
        "raw_bs": batch.batch_size,
        "num_tokens": tokens,
        "seq_len_fill_value": fill,
        "capture_forward_mode": forward_mode(mode),
        "is_encoder_decoder": buffers.encoder_lens is not None,
    }
    if build is not None:
        return build(**values, **accepted(build, global_num_tokens_cpu=None))
    return SimpleNamespace(
        batch_size=size,
        forward_mode=values["capture_forward_mode"],
        req_pool_indices=buffers.req_pool_indices[:size],
        seq_lens=buffers.seq_lens[:size],
        seq_lens_sum=batch.seq_lens_sum + (size - batch.batch_size) * fill,
        seq_lens_cpu=buffers.seq_lens_cpu[:size],
        encoder_lens=None if buffers.encoder_lens is None else buffers.encoder_lens[:size],
        spec_info=batch.spec_info,
    )


def verify_input_to_capture(world: World, mask: torch.Tensor, hidden: torch.Tensor, backend: Any) -> Any:
    """The verify input that SGLang's decode runner captures with: a mask of its own, no draft."""
    if world.spec_algorithm == "NGRAM":
        return sglang_ngram.verify_input_to_capture(world, mask)
    if world.spec_algorithm == "DFLASH":
        return sglang_dflash.verify_input_to_capture(world, mask, backend)
    info = load("sglang.srt.speculative.eagle_info")
    names = inspect.signature(info.EagleVerifyInput).parameters
    empty = {name: None for name, parameter in names.items() if parameter.default is inspect.Parameter.empty}
    values = accepted(
        info.EagleVerifyInput,
        custom_mask=mask,
        spec_steps=world.spec_steps,
        topk=world.spec_topk,
        draft_token_num=world.spec_draft_tokens,
        capture_hidden_mode=hidden_mode("FULL"),
        seq_lens_sum=None,
        seq_lens_cpu=None,
    )
    verify_input = info.EagleVerifyInput(**{**empty, **values})
    verify_input.hidden_states = hidden
    return verify_input


def extend_input_to_capture(width: int, size: int, hidden: torch.Tensor, device: str) -> Any:
    """The input that SGLang's runner for the draft's extend captures with: every row of every window."""
    info = load("sglang.srt.speculative.eagle_info")
    cls = getattr(info, "EagleDraftExtendInput", None) or info.EagleDraftInput
    counts = torch.full((size,), width, dtype=torch.int32, device=device)
    values = accepted(
        cls,
        hidden_states=hidden,
        num_correct_drafts=counts,
        num_accept_tokens=counts.clone(),
        accept_length=counts.clone(),
        num_tokens_per_req=width,
        num_tokens_for_logprob_per_req=1,
        select_index=torch.arange(size, device=device) * width + width - 1,
    )
    return cls(**values)


def draft_input_to_capture(**fields: Any) -> Any:
    """The EagleDraftInput that SGLang's runner for the draft's decode captures with."""
    cls = load("sglang.srt.speculative.eagle_info").EagleDraftInput
    return cls(**accepted(cls, capture_hidden_mode=hidden_mode("LAST"), **fields))


def hidden_mode(name: str) -> Any:
    return getattr(load("sglang.srt.model_executor.forward_batch_info").CaptureHiddenMode, name)
