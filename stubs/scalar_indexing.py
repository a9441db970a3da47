"""Lets kernels index a scalar, as in ``x[:, None]``: up to Triton 3.8 it made a block of one element, 3.9 refuses it.

The CUDA builds of torch that releases of SGLang ask for bring Triton 3.8 or an older one (0.5.23: torch 2.14.1 and with
it 3.8), so that what 3.9 refuses is no fault that a user of theirs meets.
"""

from __future__ import annotations

from typing import Any


def install() -> None:
    """Patch the language once; a second call changes nothing. Call after Triton may be imported."""
    from triton.language import core

    stock: Any = core.tensor.__getitem__
    if getattr(stock, "mended", False):
        return

    @core.builtin  # type: ignore[untyped-decorator]
    def getitem(self: Any, slices: Any, _semantic: Any = None) -> Any:
        given = getattr(slices, "values", slices) if not isinstance(slices, slice) else [slices]
        if self.type.is_block() or not isinstance(given, (list, tuple)):
            return stock(self, slices, _semantic=_semantic)
        added = [one for one in given if not _is_all(one)]
        return stock(self, added, _semantic=_semantic)

    getitem.mended = True
    core.tensor.__getitem__ = getitem


def _is_all(index: Any) -> bool:
    """Whether it is ``:``, of which a scalar has no axis."""
    bounds = (getattr(index, name, 0) for name in ("start", "stop", "step"))
    return all(getattr(bound, "value", bound) is None for bound in bounds)
