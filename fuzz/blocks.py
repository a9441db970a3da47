"""Names for the basic blocks of code that was instrumented, by where they stand: the same in every process."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType


def blocks(code: CodeType, inside: str, call: str) -> Iterator[tuple[int, str]]:
    """Number and name of each block of ``code`` and of what is defined in it, which ``inside`` names.

    At its head a block calls something by the name ``call`` with its number. Numbers are given out in an order that
    changes from process to process.
    """
    name = f"{inside}.{code.co_name}"
    is_called, place = False, 0
    for instruction in dis.get_instructions(code):
        if is_called and type(instruction.argval) is int and instruction.opname.startswith("LOAD"):
            yield instruction.argval, f"{name} {place}"
            is_called, place = False, place + 1
        elif instruction.argval == call:
            is_called = True
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from blocks(constant, name, call)
