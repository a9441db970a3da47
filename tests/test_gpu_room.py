"""What of the GPU tests can be tested without a GPU: that they are skipped or fail, and the fault that they plant."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fuzz.launch import ROOT
from fuzz.program import Decode, Extend, Program, Row
from stubs.world import World
from tests.conftest import RealWorker

NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # wherever this runs


def pytest_of_gpu_room(**environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/gpu", "-p", "no:cacheprovider"]
    surroundings = {name: value for name, value in NO_GPU.items() if name != "SEAMRIPPER_REQUIRE_GPU"} | environment
    return subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)


def test_without_a_gpu_its_tests_are_skipped_with_the_reason() -> None:
    done = pytest_of_gpu_room()
    assert (done.returncode, "5 skipped" in done.stdout) == (0, True)
    assert "sees no CUDA device" in done.stdout


def test_where_a_gpu_was_said_to_be_there_they_fail_with_the_reason() -> None:
    done = pytest_of_gpu_room(SEAMRIPPER_REQUIRE_GPU="1")
    assert done.returncode == 1
    assert "sees no CUDA device; expected one, since SEAMRIPPER_REQUIRE_GPU is set" in done.stdout + done.stderr


@pytest.mark.release
def test_planted_store_is_seen_by_the_interpreter_and_by_the_guard(real_worker: RealWorker) -> None:
    world = World(prefill="triton", decode="torch_native", dtype="float16")
    program = Program(world, (Extend((Row(0, 3),)), Decode((0,))), 3)
    trace = real_worker("0.5.23", "tests.gpu.planted_executor").run(program, 120)
    assert [(str(finding.signature), finding.op_index) for finding in trace.findings] == [
        ("bounds/view/store_behind.buffer", 1),
        ("bounds/guard_overwritten/TorchNativeAttnBackend.k_buffer", 1),
    ]
