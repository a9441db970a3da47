"""Has kernels run checked, whoever launches them, and keeps what is wrong with them until it is judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fuzz.oracle.bounds import batch_of, slot_policies, table_policy
from fuzz.oracle.view import Strays
from stubs import interpreter
from stubs.interpreter_log import Violation
from stubs.kernels.contract import ContractBreach, noted_in
from stubs.plan import StepPlan
from stubs.slots import kv_buffers


class KernelWatch:
    """``violations`` and ``breaches`` are those that nobody has taken yet. On a GPU kernels are out of sight."""

    def __init__(self) -> None:
        self.server: Any = None  # whose pools are watched; None until it stands
        self.violations: list[Violation] = []
        self.breaches: list[ContractBreach] = []

    @contextmanager
    def over(self, plan: StepPlan | None, *, notes: bool = True) -> Iterator[None]:
        """Kernels run within are held against the rows of ``plan``, if there is one; without ``notes`` any breach raises."""
        if torch.cuda.is_available():
            yield
            return
        policies = [] if plan is None else [*slot_policies(plan), table_policy(plan)]
        rows = None if plan is None else batch_of(plan)
        with noted_in(self.breaches if notes else None), interpreter.checked(policies, self._pools(), rows) as log:
            try:
                yield
            finally:
                self.violations += log.violations

    def take(self) -> Strays:
        """What was wrong, which is whoever asks' to judge."""
        taken = Strays(tuple(self.violations), tuple(self.breaches))
        self.violations.clear()
        self.breaches.clear()
        return taken

    def _pools(self) -> list[torch.Tensor]:
        """Every K and V buffer: kernels that move rows find them by tables of their addresses."""
        runners = () if self.server is None else (self.server.target, self.server.draft)
        return [buffer for runner in runners if runner is not None for buffer in kv_buffers(runner.token_to_kv_pool)]
