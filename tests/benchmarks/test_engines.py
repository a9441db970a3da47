"""The race of engines has faults that a release shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.release
def test_the_faults_show_in_the_newest_release(target_folder: Callable[[str], Path], tmp_path: Path) -> None:
    results = tmp_path / "engines.json"
    command = [
        sys.executable,
        "benchmarks/engines.py",
        "--sglang",
        str(target_folder("0.5.23")),
        "--json",
        str(results),
    ]
    command += ["--engines", "random", "--seeds", "1", "--seconds", "10"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (outcome,) = map(json.loads, results.read_text().splitlines())
    assert {"three ops deep", "five ops deep"} <= set(outcome["found"])
