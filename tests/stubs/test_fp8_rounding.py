"""Values rounded to fp8 by the interpreter are those that torch rounds to, also where the mantissa's carry goes up."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stubs import fp8_rounding

VALUES = np.array([0.4945562, 1.892597, -1.913, 0.0017836, 1.0, 500.0, -0.0], dtype=np.float32)


@pytest.mark.parametrize(("name", "dtype"), [("float8e4nv", torch.float8_e4m3fn), ("float8e5", torch.float8_e5m2)])
def test_as_torch_rounds_and_saturating(name: str, dtype: torch.dtype) -> None:
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    fp8_rounding.install()
    language = interpreter.tl
    found = interpreter._convert_float(VALUES, language.float32, getattr(language, name), None)
    most = torch.finfo(dtype).max
    assert found.dtype == np.uint8
    assert found.tolist() == torch.from_numpy(VALUES).clamp(-most, most).to(dtype).view(torch.uint8).tolist()


def test_other_casts_are_the_interpreters_own() -> None:
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    fp8_rounding.install()
    again = interpreter._convert_float
    fp8_rounding.install()
    assert interpreter._convert_float is again
