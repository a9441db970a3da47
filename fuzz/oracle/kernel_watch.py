"""Has interpreted kernels run checked, whoever launches them, and keeps what they did wrong until it is judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fuzz.oracle.bounds import batch_of, slot_policies, table_policy
from stubs import interpreter
from stubs.interpreter_log import Violation
from stubs.plan import StepPlan
from stubs.slots import kv_buffers


class KernelWatch:
    """``violations`` are those that nobody has taken yet. On a GPU kernels are out of sight."""

    def __init__(self) -> None:
        self.server: Any = None  # whose pools are watched; None until it stands
        self.violations: list[Violation] = []

    @contextmanager
    def over(self, plan: StepPlan | None) -> Iterator[None]:
        """Kernels run within are held against the rows of ``plan``, if there is one."""
        if torch.cuda.is_available():
            yield
            return
        policies = [] if plan is None else [*slot_policies(plan), table_policy(plan)]
        with interpreter.checked(policies, self._pools(), None if plan is None else batch_of(plan)) as log:
            try:
                yield
            finally:
                self.violations += log.violations

    def take(self) -> tuple[Violation, ...]:
        """The violations, which are whoever asks' to judge."""
        taken = tuple(self.violations)
        self.violations.clear()
        return taken

    def _pools(self) -> list[torch.Tensor]:
        """Every K and V buffer: kernels that move rows find them by tables of their addresses."""
        runners = () if self.server is None else (self.server.target, self.server.draft)
        return [buffer for runner in runners if runner is not None for buffer in kv_buffers(runner.token_to_kv_pool)]
