"""bfloat16 in interpreted kernels means its values; stock computes with the bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import numpy as np

from stubs.bfloat16_arithmetic import narrow, widen


def test_kernels_compute_with_the_values_in_stock_and_fast() -> None:
    """In a process of its own, since the patch stays."""
    root = Path(__file__).resolve().parent.parent.parent
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    code = root / "tests" / "stubs" / "bfloat16_kernel.py"
    result = subprocess.run(
        [sys.executable, str(code)], env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    assert result.stdout == "([1.0, 0.0, -3.0, -2.5], [1, 0, 1, 0], [-4.0]) True\n", result.stderr


@pytest.mark.parametrize(
    ("value", "bits"),
    [(1.0, 0x3F80), (-2.0, 0xC000), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (float("inf"), 0x7F80), (1e-45, 0)],
)
def test_narrow_rounds_to_nearest_even(value: float, bits: int) -> None:
    assert int(narrow(np.array([value], np.float32))[0]) == bits


def test_nan_stays_nan() -> None:
    assert np.isnan(widen(narrow(np.array([float("nan")], np.float32))))[0]


def test_widen_is_exact() -> None:
    assert widen(np.array([0x3FC0, 0x8000], np.uint16)).tolist() == [1.5, -0.0]
