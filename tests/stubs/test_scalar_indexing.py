"""A scalar that a kernel indexes is a block of one element, whatever Triton runs here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parent.parent.parent


def test_kernels_index_scalars_in_stock_and_fast() -> None:
    """In a process of its own, since the patch stays."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    code = ROOT / "tests" / "stubs" / "scalar_kernel.py"
    result = subprocess.run(
        [sys.executable, str(code)], env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    assert result.stdout == "[[20.0, 30.0], [40.0, 50.0]] True\n", result.stderr
