"""The real server: a RealRunner in the shape that the scheduler and the executor drive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stubs import sglang_chunk, sglang_draft
from stubs.eager_step import run_layers
from stubs.graphs import Graphs
from stubs.layer_inputs import DrawInput
from stubs.plan import StepPlan
from stubs.real_runner import RealRunner, build_real_runner
from stubs.refusal import Refused
from stubs.tap import Tap
from stubs.world import World

# What a layer of the tiny Llama cannot be, or what its model does not do; of deterministic inference, what would change
# this process for good.
FAKE_ONLY = (
    "kv_lora_rank",
    "kv_dtype",
    "v_head_dim",
    "sinks",
    "query_scalar",
    "xai_temperature_len",
    "save_kv_cache",
    "logit_shift",
    "deterministic",
    "wrapper",
    "window_tokens",
    "encoder_decoder",
)


class RealServer:
    """SGLang's own model runner as the target; there is no draft model, so draft steps are left out."""

    def __init__(self, world: World, runner: RealRunner) -> None:
        self.world = world
        self.runner = runner
        self.target = runner.model_runner
        self.draft = None
        self.graphs = Graphs()
        self.draft_decode = None

    def forward(self, plan: StepPlan, draw: DrawInput) -> list[Tap]:
        """The whole model's forward; its own layers make q, k and v, so ``draw`` is not used."""
        self.runner.forward(plan.forward_batch)
        return list(self.runner.taps)

    def replay(self, plan: StepPlan, taps: Sequence[Tap], backend: Any) -> list[Tap]:
        """The step's attention alone, once more on another wrapper, with the inputs that the layers had."""
        inputs = [(tap.q, tap.k, tap.v) for tap in taps]
        again = run_layers(backend, self.runner.radix_layers, plan.forward_batch, inputs)
        self.runner.taps.clear()  # the hooks saw this run too
        return again

    def rebuild_backend(self) -> Any:
        """A fresh wrapper, assembled by SGLang's own code."""
        return self.runner.rebuild_backend()

    def close(self) -> None:
        self.runner.close()


def build_real_server(world: World) -> RealServer:
    """Start SGLang's ModelRunner for ``world``. Raises Refused where SGLang turns the world down."""
    if world.sliding_window or world.logit_cap:
        raise Refused("the tiny Llama of the real runner has no window and no cap on its logits; use the fake runner")
    for name in FAKE_ONLY:
        if getattr(world, name) != getattr(World(), name):
            raise Refused(
                f"the tiny Llama of the real runner has no {name} {getattr(world, name)}; use the fake runner"
            )
    if world.is_speculative and not world.has_draft_model:
        raise Refused(f"{world.spec_algorithm} was not tried on the real runner yet; use the fake runner")
    sglang_chunk.refuse_backends(world)
    runner = build_real_runner(world)
    if world.is_speculative:
        # Service starts a draft worker too; its factory is asked for the same refusals.
        try:
            sglang_draft.build_draft_extend_backend(runner.model_runner, world)
        except BaseException:
            runner.close()
            raise
    return RealServer(world, runner)
