"""JSON lines that tell whether they are still what was written: each begins with a checksum of the rest."""

from __future__ import annotations

import json
import zlib
from typing import Any


class SealError(ValueError):
    """A line that is not what was written; the message says how that is known."""


def sealed(data: dict[str, Any]) -> str:
    """One line of compact JSON, its checksum first. ``data`` has at least one field, none named "crc"."""
    body = _body(data)
    return f'{{"crc":"{_crc(body)}",{body[1:]}'


def unsealed(line: str) -> dict[str, Any]:
    """What ``sealed`` was given. Raises SealError."""
    data = parsed(line)
    crc = data.pop("crc", None)
    if crc != _crc(_body(data)):
        raise SealError("has no checksum" if crc is None else "does not fit its checksum")
    return data


def parsed(line: str) -> dict[str, Any]:
    """The fields of a line, the checksum among them, unchecked. Raises SealError."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SealError(f"not JSON ({error})") from None
    if not isinstance(data, dict):
        raise SealError("not an object")
    return data


def _body(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), sort_keys=True)


def _crc(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
