"""A Triton kernel that tests capture."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def add_one(x_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at) + 1)
