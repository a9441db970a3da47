"""Modules of SGLang that some releases have and others lack."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def present(*names: str) -> Iterator[ModuleType]:
    """Those of the modules ``names`` that this release has, each imported when it is asked for.

    What fails within one of them is raised: a release that has a module and lacks what it needs is no release without it.
    """
    return (import_module(name) for name in names if _has(name))


def _has(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("sglang"):
            raise
        return False  # a package above it is missing
