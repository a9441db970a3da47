"""The one door through which stand-ins for closed kernels are called, so that a graph under capture hears of each call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Recorder(Protocol):
    """Makes a stand-in's call its own node: ``call`` runs it and keeps what is needed to run it again."""

    def call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


@dataclass(slots=True)
class _Door:
    recorder: Recorder | None = None
    replays: bool = False


_DOOR = _Door()


def closed_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Marks a stand-in for one closed kernel: to a graph its call is one node, whatever torch does within."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        recorder = _DOOR.recorder
        if recorder is None:
            return function(*args, **kwargs)
        result: R = recorder.call(function.__name__, function, args, kwargs)
        return result

    return call


@contextmanager
def replaying() -> Iterator[None]:
    """Within, calls are those of a graph that is replayed."""
    _DOOR.replays = True
    try:
        yield
    finally:
        _DOOR.replays = False


def replays() -> bool:
    """Whether a graph that is replayed makes the call under way."""
    return _DOOR.replays


@contextmanager
def heard_by(recorder: Recorder) -> Iterator[None]:
    """Within, calls of closed kernels go to ``recorder``. Not for nesting."""
    assert _DOOR.recorder is None, "a graph is captured within another's capture"
    _DOOR.recorder = recorder
    try:
        yield
    finally:
        _DOOR.recorder = None
