"""Runs programs as ``fuzz.execute`` does, with a Triton kernel after each decode that stores behind the KV pool.

The program's seed is how many elements behind its end the store lies, FAR terabytes; 0 plants nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

import triton
import triton.language as tl

from fuzz import execute as plain
from fuzz.program import Program
from fuzz.trace import Trace
from stubs.fake_server import FakeServer
from stubs.layer_inputs import DrawInput
from stubs.plan import StepPlan
from stubs.tap import Tap

prepare, available_pairs, speculative_modes = plain.prepare, plain.available_pairs, plain.speculative_modes


FAR = 1000
TERABYTES = 1 << 40  # elements: behind everything that a GPU has memory for


@triton.jit
def store_behind(buffer, size):
    tl.store(buffer + size, 1.0)


def execute(program: Program) -> Trace:
    honest = FakeServer.forward

    def forward(self: FakeServer, plan: StepPlan, draw: DrawInput) -> Sequence[Tap]:
        taps = honest(self, plan, draw)
        if program.seed and plan.mode == "decode":
            buffer: Any = plan.runner.token_to_kv_pool.v_buffer[-1]  # also the last where all share one storage
            store_behind[(1,)](buffer, buffer.numel() + (TERABYTES if program.seed == FAR else program.seed - 1))
        return taps

    with mock.patch.object(FakeServer, "forward", forward):
        return plain.execute(program)
