"""For which request of a batch a program of a kernel works, told by what it loads and not by the kernel's name.

A program that loads element i of a tensor that holds one element a request works for request i. So does one that loads
elements i and i + 1 of an indptr: an integer vector of one element more than there are requests, that starts at 0 and
never falls. The last such load counts, for a program may search or go from request to request. Where nothing tells,
the request is not known, and rules fall back on what any request of the batch may do.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from stubs.interpreter_log import Batch

Program = tuple[int, int, int]


class RequestTrace:
    """What the running program has loaded so far of tensors that tell requests apart."""

    def __init__(self, batch: Batch) -> None:
        self.count = batch.count
        self.arrays = {array.data_ptr() for array in batch.arrays}
        self._program: Program | None = None
        self._place: int | None = None
        self._last: tuple[str, int] = ("", 0)

    def clue(self, tensor: Any) -> str:
        """What loads of single elements of ``tensor`` tell: "array", "indptr" or "" for nothing."""
        if self.count < 2 or tensor.dim() != 1 or tensor.is_floating_point():  # a lone request is known without
            return ""
        if tensor.data_ptr() in self.arrays:
            return "array"
        if tensor.numel() != self.count + 1 or tensor.element_size() < 4:
            return ""
        values = tensor.tolist()
        rises = values[0] == 0 and all(low <= high for low, high in pairwise(values))
        return "indptr" if rises else ""

    def launched(self) -> None:
        self._program = None

    def note(self, clue: str, argument: str, element: int, program: Program) -> None:
        """The program loaded one element of an argument that tells something."""
        if program is not self._program:
            self._program, self._place, self._last = program, None, ("", 0)
        if clue == "array":
            if 0 <= element < self.count:
                self._place = element
            return
        before, self._last = self._last, (argument, element)
        if before[0] == argument and abs(before[1] - element) == 1:
            self._place = min(before[1], element)

    def place(self, program: Program) -> int | None:
        """The place in the batch of the request that the program works for, or None."""
        if self.count == 1:
            return 0
        return self._place if program is self._program else None
