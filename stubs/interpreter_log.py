"""What a checked interpreter is told and tells: rules about KV rows in, violations out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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
class SlotPolicy:
    """Which rows (KV slots) of ``buffer``, counted along its first dimension, kernels may read and write.

    Bool arrays [rows], or [requests, rows] with ``request_of`` telling a launch's request from the kernel's name and
    its program id (None: any request's rows are allowed). None allows every row.
    """

    name: str
    buffer: Any
    readable: NDArray[np.bool_] | None = None
    writable: NDArray[np.bool_] | None = None
    request_of: Callable[[str, tuple[int, int, int]], int | None] | None = None

    def allowed(
        self, access: str, kernel: str, program: tuple[int, int, int]
    ) -> tuple[NDArray[np.bool_] | None, int | None]:
        """(bool [rows] or None for all, the request where one is told)."""
        rows = self.readable if access == "load" else self.writable
        if rows is None or rows.ndim == 1:
            return rows, None
        request = self.request_of(kernel, program) if self.request_of else None
        if request is None:
            return np.asarray(rows.any(axis=0)), None
        return np.asarray(rows[request]), request


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
