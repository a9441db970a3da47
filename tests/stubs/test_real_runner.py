"""The real runner on releases of SGLang: what it builds, one world after another, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.release

ROOT = Path(__file__).parent.parent.parent
PROBE = Path(__file__).parent / "real_runner_probe.py"

Answers = dict[str, Any]


@pytest.fixture(scope="module", params=["0.5.11", "0.5.16", "0.5.23"])
def answers(request: pytest.FixtureRequest, target_folder: Callable[[str], Path]) -> Answers:
    """What the probe prints, once for each release."""
    command = [sys.executable, str(PROBE), str(target_folder(request.param)), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def test_sglang_itself_joins_the_pair(answers: Answers) -> None:
    assert answers["pairs"] == [
        ["HybridAttnBackend", "TritonAttnBackend", "FlashAttentionBackend"],
        ["HybridAttnBackend", "FlashAttentionBackend", "TorchNativeAttnBackend"],
    ]


def test_a_second_world_has_its_own_geometry(answers: Answers) -> None:
    # 64 slots and one page of padding; the whole pool but the padding is free.
    assert answers["geometry"] == {"layers": [0, 1, 2], "pool": [68, 2, 16], "free": 64, "heads": [4, 2, 16]}


def test_a_rebuilt_backend_is_another_of_its_class_and_the_runner_keeps_its_own(answers: Answers) -> None:
    assert answers["rebuilt"] == [True, True, True]


def test_a_backend_that_sglang_does_not_know_is_refused_in_its_words(answers: Answers) -> None:
    assert "no_such_backend" in answers["refused"]


def test_taps_of_a_program_agree_with_float64(answers: Answers) -> None:
    assert answers["program"] == ["ok", ["extend", "decode", "idle"], []]


def test_worlds_leave_no_open_files_behind(answers: Answers) -> None:
    assert answers["growth"] <= 0
