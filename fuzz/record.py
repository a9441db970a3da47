"""One Record per executed program: the one versioned JSON line that every report is made from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

RECORD_VERSION = 1


class RecordError(ValueError):
    """A record line that cannot be read; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Record:
    """``steps`` holds (mode, verdict, count) for every step that ran; ``seconds`` is the wall time of the program.

    ``at`` is Unix time in seconds when the program ended; ``elapsed_seconds`` is since the campaign started.
    ``signature``, ``title`` and ``reason`` are empty for verdict ok; ``reason`` is one line for the others.
    """

    at: float
    elapsed_seconds: float
    seed: int
    program: str
    ops: int
    verdict: str
    signature: str
    title: str
    reason: str
    seconds: float
    steps: tuple[tuple[str, str, int], ...]
    target: str
    sglang_version: str
    device: str
    runner: str
    prefill: str
    decode: str
    engine: str
    worker: int
    version: int = RECORD_VERSION

    def to_line(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_line(cls, line: str) -> Record:
        try:
            data: Any = json.loads(line)
        except ValueError as error:
            raise RecordError(f"not JSON ({error})") from None
        if not isinstance(data, dict) or data.get("version") != RECORD_VERSION:
            raise RecordError(f"expected an object with version {RECORD_VERSION}")
        try:
            data["steps"] = tuple((str(mode), str(verdict), int(count)) for mode, verdict, count in data["steps"])
            return cls(**data)
        except (TypeError, ValueError, KeyError) as error:
            raise RecordError(f"fields do not match version {RECORD_VERSION} ({error})") from None
