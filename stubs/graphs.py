"""The graphs that a server captures at start-up, each by the runner that SGLang has for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stubs import sglang, sglang_graph, sglang_prefill
from stubs.graph import HostRead
from stubs.graph_draft import DraftGraphRunner
from stubs.graph_overlap import OverlapGraphRunner
from stubs.graph_prefill import PrefillGraphRunner
from stubs.graph_ragged import RaggedGraphRunner
from stubs.graph_runner import ExtendGraphRunner, GraphRunner
from stubs.refusal import Refused
from stubs.world import World
from stubs.world_rules import plans_prefill


@dataclass(frozen=True, slots=True, eq=False)
class Graphs:
    """``target``: decode, or verify where the world speculates; ``prefill``: its extends. None where none are captured."""

    target: GraphRunner | None = None
    draft_extend: GraphRunner | None = None
    draft_decode: DraftGraphRunner | None = None
    prefill: PrefillGraphRunner | None = None

    @property
    def host_reads(self) -> list[HostRead]:
        """What the host read while graphs were captured."""
        runners = self.target, self.draft_extend, self.draft_decode, self.prefill
        return [read for runner in runners if runner is not None for read in runner.host_reads]


def capture_graphs(world: World, target: Any, draft: Any, draft_decode: Any) -> Graphs:
    """Capture what the world's server would. ``draft_decode`` is the draft's multi-step backend, if any.

    Raises Refused where this machine cannot.
    """
    if not world.graph and not world.prefill_graph:
        return Graphs()
    if world.device != "cpu":
        raise Refused("graphs are captured on the CPU alone; on a GPU use a world with graph 0")
    prefill = _prefill_graphs(world, target)
    if not world.graph:
        return Graphs(prefill=prefill)
    mode, width = ("TARGET_VERIFY", world.spec_draft_tokens) if world.is_speculative else ("DECODE", 1)
    runner = _kind_of(world)(target, target.attn_backend, mode, width)
    runner.capture()
    target.decode_cuda_graph_runner = target.graph_runner = runner  # the name of today, and that up to 0.5.12
    extend, decode = None, None
    if draft_decode is not None:
        decode = DraftGraphRunner(draft, draft_decode)
        decode.capture()
    if draft is not None and _fills_its_graph(world) and sglang_graph.captures_draft_extend(draft.attn_backend):
        extend = ExtendGraphRunner(draft, draft.attn_backend, "DRAFT_EXTEND_V2", world.spec_draft_tokens)
        extend.capture()
    return Graphs(runner, extend, decode, prefill)


def _kind_of(world: World) -> type[GraphRunner]:
    if world.is_ragged:
        return RaggedGraphRunner
    return OverlapGraphRunner if world.wrapper == "tbo" else GraphRunner


def _prefill_graphs(world: World, target: Any) -> PrefillGraphRunner | None:
    """Those of whole prefill steps, which SGLang captures first; None where the world or the release has none."""
    if not world.prefill_graph or not sglang.captures_prefill():
        return None
    sglang_prefill.refuse_unplanned(target.attn_backend.prefill_backend)
    counts = sglang_prefill.token_counts(
        target.server_args, world.prefill_graph, world.max_running_requests, world.context_len
    )
    if not counts:  # SGLang warns, and runs without
        return None
    runner = PrefillGraphRunner(target, target.attn_backend, counts)
    try:
        runner.capture()
    except ValueError as error:
        if plans_prefill(world):
            raise
        raise Refused(f"{world.prefill}: {error}") from error  # its own plan of a graph knows no such step
    target.prefill_cuda_graph_runner = runner
    return runner


def _fills_its_graph(world: World) -> bool:
    """Whether the draft's extend has no fewer rows than the release's graph of it: none is filled up here."""
    return world.spec_draft_tokens >= sglang_graph.draft_extend_rows(world)
