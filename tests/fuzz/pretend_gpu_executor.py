"""Runs programs as ``fuzz.execute`` does, on a pretended GPU where their worlds say cuda.

SGLang itself is started for a CPU: its own questions to the GPU have no answer here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from stubs import imports

imports.install()  # what a worker does for its usual executor, before that one is imported

from fuzz import execute as plain
from fuzz.program import Program
from fuzz.trace import Trace
from stubs import sglang
from stubs.world import World
from tests.fuzz.pretend_gpu import PretendGpu

prepare, available_pairs, speculative_modes = plain.prepare, plain.available_pairs, plain.speculative_modes


def execute(program: Program) -> Trace:
    honest = sglang.server_args

    def server_args(world: World, *paths: str) -> Any:
        return honest(replace(world, device="cpu"), *paths)

    with (
        mock.patch.object(sglang, "server_args", server_args),
        mock.patch.object(plain._Run, "_synchronize", lambda run: None),
        PretendGpu(),
    ):
        return plain.execute(program)
