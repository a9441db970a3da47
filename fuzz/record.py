"""One Record per executed program: the one versioned JSON line that every report is made from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fuzz.sealed import SealError, parsed, sealed, unsealed

RECORD_VERSION = 1


class RecordError(ValueError):
    """A record line that cannot be read; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Record:
    """``steps`` holds (mode, verdict, count) for every step that ran; ``seconds`` is the wall time of the program.

    ``at`` is Unix time in seconds when the program ended; ``elapsed_seconds`` is since the campaign started.
    ``signature``, ``title`` and ``reason`` are empty for verdict ok; ``reason`` is one line for the others.
    ``signatures`` are all that the campaign counts: of bugs, and of what the harness lacks.
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
    signatures: tuple[str, ...] = ()

    def to_line(self) -> str:
        return sealed(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Read a line; one of before there were checksums is taken at its word. Raises RecordError."""
        try:
            data: dict[str, Any] = parsed(line)
            data = unsealed(line) if "crc" in data else data
        except SealError as error:
            raise RecordError(str(error)) from None
        if data.get("version") != RECORD_VERSION:
            raise RecordError(f"expected an object with version {RECORD_VERSION}")
        try:
            data["signatures"] = tuple(str(signature) for signature in data.get("signatures", ()))
            data["steps"] = tuple((str(mode), str(verdict), int(count)) for mode, verdict, count in data["steps"])
            return cls(**data)
        except (TypeError, ValueError, KeyError) as error:
            raise RecordError(f"fields do not match version {RECORD_VERSION} ({error})") from None
