"""What an oracle is shown of one executed step, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from fuzz.finding import Signature
from fuzz.trace import family_of
from stubs.interpreter_log import Violation
from stubs.kernels.contract import ContractBreach
from stubs.plan import StepPlan
from stubs.tap import Tap
from stubs.world import World


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing an oracle found wrong with a step; it becomes a Finding with the op and mode added."""

    signature: Signature
    title: str
    message: str
    evidence: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Strays:
    """``violations`` are what the checked interpreter saw, ``breaches`` what stand-ins for closed kernels noted."""

    violations: Sequence[Violation] = ()
    breaches: Sequence[ContractBreach] = ()


@dataclass(frozen=True, slots=True)
class StepView:
    """One executed step. ``kv_before``: copies of every K and V buffer; ``inputs_before``: of what it may only read.

    ``backend`` is the wrapper that ran, ``leaf`` the backend under it that served this mode. ``rerun`` runs the same
    step on a fresh wrapper and returns (taps, wrapper), or is None where that cannot be done. ``strays`` are what went
    wrong in kernels.
    """

    world: World
    plan: StepPlan
    taps: Sequence[Tap]
    kv_before: Sequence[torch.Tensor]
    inputs_before: dict[str, torch.Tensor]
    inputs_after: dict[str, torch.Tensor]
    backend: Any
    leaf: Any
    rerun: Callable[[], tuple[Sequence[Tap], Any]] | None = None
    strays: Strays = Strays()

    @property
    def replayed(self) -> bool:
        """Whether a captured graph ran the step; then ``rerun`` runs it eagerly."""
        return self.plan.graph is not None

    def eagerly(self) -> StepView:
        """The same step without its graph, where it had one: replays are judged against that."""
        return replace(self, taps=self.rerun()[0]) if self.replayed and self.rerun is not None else self

    @property
    def place(self) -> str:
        """Where a wrong result of this step is put: the leaf's class and the family of the step's mode."""
        return f"{type(self.leaf).__name__}.{self.family}"

    @property
    def family(self) -> str:
        return family_of(self.plan.mode)

    @property
    def place_of_kv(self) -> str:
        """Where a wrong row of KV is put: one method stores for all modes it serves, a graph replays what it recorded."""
        by_mode = self.replayed or not self.plan.tokens  # where nothing was to be stored no method did it
        return self.place if by_mode else f"{type(self.leaf).__name__}.{self.method}"

    @property
    def method(self) -> str:
        """The leaf's method that served the step: SGLang sends decode to one and everything else to another."""
        return "forward_decode" if self.plan.forward_batch.forward_mode.is_decode() else "forward_extend"


def inputs_of(plan: StepPlan) -> dict[str, torch.Tensor]:
    """Copies of what a forward of ``plan`` may only read."""
    batch = plan.forward_batch
    named = {
        "req_to_token": plan.runner.req_to_token_pool.req_to_token,
        "seq_lens": batch.seq_lens,
        "req_pool_indices": batch.req_pool_indices,
        "out_cache_loc": batch.out_cache_loc,
        "positions": batch.positions,
    }
    return {name: value.clone() for name, value in named.items() if isinstance(value, torch.Tensor)}
