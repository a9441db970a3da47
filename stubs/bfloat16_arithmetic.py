"""Mends arithmetic on bfloat16 in Triton's CPU interpreter, which adds, multiplies and compares the raw bits.

Seen in Triton 3.7 to 3.9: bfloat16 is held as uint16, and only casts know, which cut a float32 off instead of rounding
it. Here an operation widens to float32, computes and rounds to nearest even, once, as a GPU does; a sum rounds once at
its end, and so does a cast. What the interpreter does with every other type is left alone. tl.dot is mended by
bfloat16_dot.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray


def install() -> None:
    """Patch the interpreter once; a second call changes nothing. Call after Triton may be imported."""
    module: Any = import_module("triton.runtime.interpreter")
    builder, reductions = module.InterpreterBuilder, module.ReduceOps
    stock_binary, stock_unary, stock_sum = builder.binary_op, builder.unary_op, reductions.sum
    stock_cast = builder.cast_impl
    if getattr(stock_binary, "mended", False):
        return
    bfloat16, handle, tl = module.tl.bfloat16, module.TensorHandle, module.tl

    def binary_op(self: Any, left: Any, right: Any, operation: Any) -> Any:
        if left.dtype.scalar != bfloat16 or right.dtype.scalar != bfloat16:
            return stock_binary(self, left, right, operation)
        result = operation(widen(left.data), widen(right.data))
        return handle(result if result.dtype == np.bool_ else narrow(result), bfloat16)

    def unary_op(self: Any, argument: Any, operation: Any) -> Any:
        if argument.dtype.scalar != bfloat16:
            return stock_unary(self, argument, operation)
        return handle(narrow(operation(widen(argument.data))), bfloat16)

    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        before, after = source.dtype.scalar, kind.scalar
        if before == tl.float32 and after == bfloat16:
            return handle(narrow(source.data), bfloat16)
        if before == bfloat16 and after == tl.float32:
            return handle(widen(source.data), tl.float32)
        return stock_cast(self, source, kind)

    def sum_(self: Any, operand: Any) -> Any:
        if operand.dtype != bfloat16:
            return stock_sum(self, operand)
        wide = tl.tensor(handle(widen(operand.handle.data), tl.float32), _as_float32(operand.type, tl))
        total = stock_sum(self, wide)
        kind = bfloat16 if not total.shape else tl.block_type(bfloat16, [size.value for size in total.shape])
        return tl.tensor(handle(narrow(total.handle.data), bfloat16), kind)

    binary_op.mended = True  # type: ignore[attr-defined]
    builder.binary_op, builder.unary_op, builder.cast_impl = binary_op, unary_op, cast_impl
    reductions.sum = sum_


def _as_float32(kind: Any, tl: Any) -> Any:
    return tl.block_type(tl.float32, list(kind.shape)) if kind.is_block() else tl.float32


def widen(bits: NDArray[Any]) -> NDArray[np.float32]:
    """float32 of the same values: a bfloat16 is the upper half of one."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The nearest bfloat16, ties to even, as raw bits; NaN stays NaN."""
    single = np.asarray(values, dtype=np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(single), np.uint32(0x7FC0), rounded).astype(np.uint16)
