"""Packages part of which stubs/kernels has written: that part is fetched when first asked for, the rest is unwritten."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from stubs.packages.unwritten import UnwrittenModule


class WrittenModule(UnwrittenModule):
    """``written`` maps a name to the module of ours that holds it; ``submodules`` are asked for as names of this one."""

    def __init__(self, name: str, written: Mapping[str, str], submodules: tuple[str, ...] = ()) -> None:
        super().__init__(name)
        self._written = written
        self._submodules = submodules

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattr__(name)
        if name in self._submodules:
            return import_module(f"{self.__name__}.{name}")
        source = self._written.get(name)
        if source is None:
            return super().__getattr__(name)
        value = getattr(import_module(source), name)
        setattr(self, name, value)
        return value
