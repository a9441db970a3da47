"""Where a value got lost between a backend and its reader: a wrapper that answers None, over a child that knows better."""

from __future__ import annotations

import linecache
import re
import traceback
from dataclasses import dataclass
from typing import Any

from fuzz.oracle.raised import frames
from fuzz.place import is_sglang
from fuzz.wrapped import children_of

_READS = re.compile(r"(?P<owner>[A-Za-z_]\w*(?:\.\w+)*)\.(?P<name>\w+)")
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Lost:
    """``asked`` answers None for ``name``. ``loser`` is where it gets lost: it ``lacks`` the name, or says None, too.

    Below ``loser`` there is a backend, ``knower``, that has a value.
    """

    name: str
    asked: type
    loser: type
    knower: type
    lacks: bool


def lost_in(error: BaseException) -> Lost | None:
    """Of what the line of SGLang's read that an operation on None failed in; None if nothing got lost."""
    if not isinstance(error, TypeError) or "NoneType" not in str(error):
        return None
    frame, entry = list(frames(error))[-1], traceback.extract_tb(error.__traceback__)[-1]
    if not is_sglang(entry.filename):
        return None
    line = linecache.getline(entry.filename, entry.lineno or 0)
    for match in _READS.finditer(line):
        first, *rest = match["owner"].split(".")
        owner = frame.f_locals.get(first)
        for name in rest:
            owner = _held(owner, name)
        if _held(owner, match["name"]) is None and (lost := _where(owner, match["name"])) is not None:
            return lost
    return None


def _where(asked: Any, name: str) -> Lost | None:
    """Down from child to child, as far as none of them has a value."""
    waiting = [(asked, False)]
    while waiting:
        wrapper, lacks = waiting.pop(0)
        for _, child in children_of(wrapper):
            value = _held(child, name)
            if value is not None and value is not _ABSENT:
                return Lost(name, type(asked), type(wrapper), type(child), lacks)
            waiting.append((child, value is _ABSENT))
    return None


def _held(owner: Any, name: str) -> Any:
    """The attribute, _ABSENT if it cannot be read."""
    try:
        return getattr(owner, name)
    except Exception:  # noqa: BLE001 - a property of the target's may raise anything
        return _ABSENT
