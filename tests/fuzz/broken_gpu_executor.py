"""Runs programs as ``fuzz.execute`` does, on a GPU that is not there and breaks at the second step.

The program's seed says how, as CUDA does it: 1 by the call that launched the kernel, 2 by the wait for it, 0 not at all.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

import torch

from fuzz import execute as plain
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import sglang

prepare, available_pairs, speculative_modes = plain.prepare, plain.available_pairs, plain.speculative_modes

faults_met: list[int] = []  # a context that is broken stays so as long as the process


def execute(program: Program) -> Trace:
    assert not faults_met, "a program came to a process whose GPU is broken"
    module = sglang.load(f"{sglang.ATTENTION}.torch_native_backend")
    match program.seed:
        case 1:
            fault = mock.patch.object(module, "scaled_dot_product_attention", _launch)
        case 2:
            fault = mock.patch.object(plain._Run, "_synchronize", _wait)
        case _:
            return plain.execute(program)
    with fault:
        return plain.execute(program)


def _launch(*tensors: Any, **named: Any) -> Any:
    faults_met.append(1)
    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


def _wait(run: Any) -> None:
    if len(run.steps) == 1:
        faults_met.append(2)
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")
