"""Tests that need a CUDA GPU: skipped where there is none, unless a GPU was said to be there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# ``tox run -e gpu`` sets it: there, that nothing was tested must not look like success.
REQUIRED = "SEAMRIPPER_REQUIRE_GPU"
_ASK = "import torch; assert torch.cuda.is_available(), f'torch {torch.__version__} sees no CUDA device'"


@pytest.fixture(scope="session")
def gpu() -> None:
    """Asked in a process of its own: this one starts others that fork, which CUDA does not survive."""
    answer = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        return
    reason = answer.stderr.strip().splitlines()[-1].removeprefix("AssertionError: ")
    if os.environ.get(REQUIRED):
        pytest.exit(f"no GPU: {reason}; expected one, since {REQUIRED} is set", returncode=1)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def spec(gpu: None, target_folder: Callable[[str], Path]) -> str:
    """The SGLang of this environment where it has one, else a release."""
    ask = [sys.executable, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('sglang') is None)"]
    if subprocess.run(ask, check=False).returncode == 0:
        return "installed"
    target_folder("0.5.23")
    return "pypi:0.5.23"
