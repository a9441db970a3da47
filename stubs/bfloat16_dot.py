"""Mends tl.dot on bfloat16 in Triton's CPU interpreter, which holds bfloat16 as raw uint16 and multiplies those bits.

Seen in Triton 3.9: ``create_dot`` converts 8-bit floats before it multiplies, and bfloat16 not. A GPU multiplies the
values with a float32 accumulator; so does this.
"""

from __future__ import annotations

import numpy as np


def install() -> None:
    """Patch the interpreter once; a second call changes nothing. Call after Triton may be imported."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    stock = builder.create_dot
    if getattr(stock, "mended", False):
        return
    bfloat16 = interpreter.tl.bfloat16

    def widened(handle: interpreter.TensorHandle) -> interpreter.TensorHandle:
        if handle.dtype.scalar != bfloat16:
            return handle
        bits = handle.data.astype(np.uint32) << 16  # a bfloat16 is the upper half of a float32
        return interpreter.TensorHandle(bits.view(np.float32), interpreter.tl.float32)

    def create_dot(self: interpreter.InterpreterBuilder, a: object, b: object, *rest: object) -> object:
        return stock(self, widened(a), widened(b), *rest)

    create_dot.mended = True  # type: ignore[attr-defined]
    builder.create_dot = create_dot
