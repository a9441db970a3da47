"""Tells of an access that broke a rule: through which argument, at which elements, from which line of the kernel."""

from __future__ import annotations

import linecache
import sys
from typing import Any

from stubs.interpreter_log import Violation
from stubs.interpreter_region import Region


def violation_of(
    kind: str,
    access: str,
    region: Region | None,
    offset: Any,
    bad: Any,
    *,
    kernel: str,
    program: tuple[int, int, int],
    lands_in: str = "",
    row: int | None = None,
    request: int | None = None,
) -> Violation:
    """Of the ``bad`` lanes of ``offset``, in bytes from the region's first element; without a region an address."""
    elements = offset[bad] // (region.item if region else 1)
    file, line = _kernel_line()
    return Violation(
        kind=kind,
        access=access,
        kernel=kernel,
        argument=region.name if region else "an address",
        program=program,
        lanes=int(bad.sum()),
        offset=int(elements[0]),
        offset_min=int(elements.min()),
        offset_max=int(elements.max()),
        extent=region.extent if region else 0,
        shape=region.shape if region else (),
        stride=region.stride if region else (),
        dtype=str(region.tensor.dtype) if region else "",
        lands_in=lands_in,
        row=row,
        request=request,
        file=file,
        line=line,
        text=linecache.getline(file, line).strip(),
    )


def _kernel_line() -> tuple[str, int]:
    """File and line of the kernel's statement that is running: the innermost frame that is not machinery."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if "/triton/" not in file and not file.startswith("<") and "/stubs/interpreter" not in file:
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0
