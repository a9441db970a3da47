"""What a checked interpreter is told and tells: rules about KV rows in, violations out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

VIOLATIONS_MAX = 200  # kept in full; further ones are counted, since one fault tends to repeat in every program


@dataclass(frozen=True, slots=True)
class Violation:
    """Lanes of one access that broke one rule. Offsets and extent in elements from the argument's first."""

    kind: str
    access: str  # load, store or atomic
    kernel: str
    argument: str
    program: tuple[int, int, int]
    lanes: int
    offset: int  # of the first bad lane
    offset_min: int
    offset_max: int
    extent: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    lands_in: str  # argument or buffer at the first bad address, or ""
    row: int | None  # of the policy's buffer
    request: int | None
    file: str
    line: int
    text: str

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What names the fault from release to release: no numbers, no lines."""
        return self.kind, self.access, self.kernel, self.argument, self.text

    def __str__(self) -> str:
        row = "" if self.row is None else f", row {self.row}"
        request = "" if self.request is None else f" of request {self.request}"
        lands = f", lands in {self.lands_in}" if self.lands_in else ""
        return (
            f"[{self.kind}] {self.access} through {self.argument}{request} in {self.kernel}{self.program}: {self.lanes} "
            f"lanes, element {self.offset} ({self.offset_min}..{self.offset_max}) of {self.extent}{row}{lands}; shape "
            f"{self.shape} stride {self.stride} {self.dtype}; {self.file}:{self.line}: {self.text}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class RequestRows:
    """What one request, named ``request`` in reports, may touch of a policy's buffer: bool [rows] each."""

    request: int
    readable: NDArray[np.bool_]
    writable: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class SlotPolicy:
    """Which rows (KV slots) of ``buffer``, counted along its first dimension, kernels may read and write.

    ``readable`` and ``writable``, bool [rows], hold for a program whose request is not known; None allows every row.
    ``by_request``, in the order of the batch, holds for one whose request is. ``unit`` names what a row is.
    """

    name: str
    buffer: Any
    readable: NDArray[np.bool_] | None = None
    writable: NDArray[np.bool_] | None = None
    by_request: Sequence[RequestRows] = ()
    unit: str = "row"

    def allowed(self, access: str, place: int | None) -> tuple[NDArray[np.bool_] | None, int | None]:
        """(bool [rows] or None for all, the request where it is known), of the request at ``place`` in the batch."""
        if place is not None and place < len(self.by_request):
            own = self.by_request[place]
            return own.readable if access == "load" else own.writable, own.request
        return self.readable if access == "load" else self.writable, None


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The requests of a step: how many, and tensors that hold one element for each, by which programs give themselves
    away."""

    count: int
    arrays: Sequence[Any] = ()


@dataclass(slots=True)
class Log:
    """What a checked run saw."""

    violations: list[Violation] = field(default_factory=list)
    counts: Counter[tuple[str, str, str, str, str]] = field(default_factory=Counter)
    accesses: int = 0
    launches: int = 0

    def add(self, violation: Violation) -> None:
        self.counts[violation.key] += 1
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(violation)
