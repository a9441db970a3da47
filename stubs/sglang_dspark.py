"""SGLang's DSPARK verify steps, compact: of each request as many drafted tokens as its planner says, packed in a row.

The planner, the verify window and the executor are SGLang's own; the draft model is not driven. What it would say of how
sure it is of each token is made up here, so that the planner comes to the lengths asked for.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from copy import copy
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from stubs.sglang import accepted, find, load
from stubs.sglang_batch import worker_batch
from stubs.sglang_dflash import verify_input_to_capture as uniform_input_to_capture
from stubs.sglang_spec import bare_worker
from stubs.world import World

PARTS = "sglang.srt.speculative.dspark_components"
GRAPH_RUNNER = "sglang.srt.model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner"


@contextlib.contextmanager
def compact_mode() -> Iterator[None]:
    """SGLang's switch of compact verifies, as a server's environment has it."""
    with patch.dict(os.environ, SGLANG_RAGGED_VERIFY_MODE="compact"):
        yield


class Verify:
    """One verify of ``batch``, a ScheduleBatch that stays as it is: prepared once to run, and once more to run eagerly.

    ``tokens`` int64 [B, width] on device; ``lens``: how many tokens of each request to verify, none: all;
    ``reserved`` are the slots that each request's row holds: what the host goes by where it is not told of lengths.
    """

    def __init__(
        self, batch: Any, tokens: torch.Tensor, lens: Sequence[int], reserved: Sequence[int], world: World
    ) -> None:
        self.batch, self.tokens, self.lens, self.reserved, self.world = batch, tokens, lens, reserved, world

    def prepared(self, target: Any) -> tuple[Any, list[int]]:
        """The ForwardBatch, and how many tokens of each request it verifies: where no graph is large enough, all."""
        world, batch = self.world, copy(worker_batch(self.batch))
        size, width = self.tokens.shape
        with compact_mode():
            layout = _layout(batch, self.lens, target, world)
        window = _window(batch, target, world)
        caught: list[Any] = []
        executor = _executor(target, world, caught)
        if layout is None:
            host = torch.tensor(self.reserved, dtype=torch.int32)
            told = {"cpu": host, "sum": int(host.sum())}
            names = ("nxt_kv_lens", "reserved_seq_lens")  # today's, and that up to 0.5.21
            drafted = SimpleNamespace(**{f"{name}_{key}": value for name in names for key, value in told.items()})
            executor.run_non_compact(
                batch=batch, draft_input=drafted, verify_ids_2d=self.tokens, verify_window=window, sampling_info=None
            )
            return caught[0], [width] * size
        executor.run_compact(
            batch=batch,
            layout=layout,
            draft_block_ids=self.tokens,
            draft_tokens=self.tokens[:, 1:],
            bs=size,
            device=world.device,
            sampling_info=None,
            **accepted(executor.run_compact, verify_window=window),
        )
        return caught[0], layout.verify_lens.tolist()

    def eagerly(self, target: Any, backend: Any) -> Any:
        """The ForwardBatch that a server without graphs makes, planned on ``backend``."""
        runner = copy(target)
        runner.decode_cuda_graph_runner = runner.graph_runner = None
        runner.attn_backend = backend
        return self.prepared(runner)[0]


def _layout(batch: Any, lens: Sequence[int], target: Any, world: World) -> Any:
    """SGLang's RaggedVerifyLayout for these lengths, or None where it has no graph for so many tokens."""
    module, width = load(f"{PARTS}.dspark_planner"), world.spec_draft_tokens
    sync = find("sglang.srt.speculative.spec_tp_sync:SpecTpSync")
    planner = bare_worker(
        f"{PARTS}.dspark_planner:DSparkVerifyPlanner",
        model_runner=target,
        server_args=target.server_args,
        gamma=width - 1,
        verify_num_draft_tokens=width,
        _ragged_verify_mode=module.read_ragged_verify_mode(),
        _schedule_cfg=module.DSparkScheduleConfig(gamma=width - 1),
        _budget_planner=SimpleNamespace(),  # is there: what it would come to is the budget below
        _is_verify_all=not lens,
        _dynamic_graph_tier=True,
        _align_verify_tokens_to_graph_tier=False,
        _uniform_layout_cache={},
        _tp_sync=None if sync is None else sync(SimpleNamespace(world_size=1, rank_in_group=0)),
    )
    sure = [[float(place < count - 1) for place in range(width - 1)] for count in lens]
    return planner.schedule_layout(
        req_pool_indices=batch.req_pool_indices,
        prefix_lens=batch.seq_lens,
        device=torch.device(world.device),
        confidence=torch.tensor(sure, device=world.device) if lens else None,
        budget=sum(lens) - len(lens) if lens else None,
    )


def _window(batch: Any, target: Any, world: World) -> Any:
    """The whole window of each request: positions and slots, as SGLang's worker has them before it plans."""
    allocate, width = load(f"{PARTS}.dspark_planner").alloc_verify_window, world.spec_draft_tokens
    return allocate(
        batch=batch,
        bs=len(batch.seq_lens),
        device=world.device,
        verify_num_draft_tokens=width,
        block_pos_offsets=torch.arange(width, device=world.device),
        model_runner=target,
        **accepted(allocate, seq_lens_cpu=batch.seq_lens_cpu),
    )


def _executor(target: Any, world: World, caught: list[Any]) -> Any:
    """SGLang's executor over a target that computes nothing: ``caught`` gets the ForwardBatch that it is to run."""

    def forward(forward_batch: Any, **_: Any) -> Any:
        caught.append(forward_batch)
        nothing = torch.zeros(len(forward_batch.positions), 1, device=world.device)
        made = SimpleNamespace(next_token_logits=nothing, hidden_states=nothing)
        return SimpleNamespace(logits_output=made, can_run_cuda_graph=False)

    return bare_worker(
        f"{PARTS}.dspark_verify:TargetVerifyExecutor",
        target_worker=SimpleNamespace(model_runner=target, forward_batch_generation=forward),
        model_runner=target,
        gamma=world.spec_draft_tokens - 1,
        verify_num_draft_tokens=world.spec_draft_tokens,
        verify_epilogue=None,
        _target_is_dsv41=False,
        _verify_backend_self_adds_seq_lens_cache=None,
    )


def graph_rules(backend: Any, sizes: Sequence[int], world: World) -> Any:
    """SGLang's own graph runner of decodes with nothing captured: its rules of compact verifies alone are asked."""
    rules = bare_worker(
        GRAPH_RUNNER,
        attn_backend=backend,
        device=world.device,
        ragged_verify_mode=True,
        captured_req_width=world.spec_draft_tokens,
        capture_bs=list(sizes),
        max_bs=sizes[-1],
        capture_num_tokens=None,
        capture_hidden_mode=load("sglang.srt.model_executor.forward_batch_info").CaptureHiddenMode.FULL,
        require_mlp_sync=False,
        is_encoder_decoder=False,
        _captured_ragged_layouts={},
    )
    rules.capture_num_tokens = rules._build_ragged_verify_token_buckets()
    return rules


def verify_input_to_capture(world: World, mask: torch.Tensor, backend: Any, layout: Any) -> Any:
    """The input that SGLang's decode runner captures a compact verify with."""
    verify_input = uniform_input_to_capture(world, mask, backend)
    verify_input.ragged_verify_layout = layout
    return verify_input
