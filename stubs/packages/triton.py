"""Mends Triton's interpreter where it refuses kernels that a GPU runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# Where each builder method takes its mask, counted without self.
_MASKED = (("create_masked_load", 1), ("create_masked_store", 2))


def mend_interpreter() -> None:
    """Let loads and stores take any integer mask that Triton's front end lets through.

    ``comparison & loaded int1`` leaves an integer array behind, which the interpreter refuses ("mask has unsupported
    dtype"). Call once, after TRITON_INTERPRET is set.
    """
    interpreter = import_module("triton.runtime.interpreter")
    builder = interpreter.InterpreterBuilder
    for name, position in _MASKED:
        setattr(builder, name, _with_bool_mask(getattr(builder, name), position, interpreter))


def _with_bool_mask(method: Callable[..., Any], position: int, interpreter: Any) -> Callable[..., Any]:
    def masked(builder: Any, *args: Any, **kwargs: Any) -> Any:
        mask = args[position]
        if mask.data.dtype != bool:
            as_bool = interpreter.TensorHandle(mask.data.astype(bool), interpreter.tl.int1)
            args = (*args[:position], as_bool, *args[position + 1 :])
        return method(builder, *args, **kwargs)

    return masked
