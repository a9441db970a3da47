"""The out folder of a campaign: lines that are on disk before anything is said of them, and whole files or none.

A program is in its worker's journal from before it is sent until its record is written. A journal that is left over
names a program that was running when everything was killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzz.record import Record
from fuzz.sealed import sealed

FINDINGS = "findings.jsonl"


class StoreError(RuntimeError):
    """The out folder cannot be written, or is in use; the message says which file, why and what to do."""


class StoreInUseError(StoreError):
    """Another campaign writes to the out folder."""


class Store:
    """A held resource: one campaign at a time writes to ``folder``. ``close`` lets another in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[Path, int] = {}
        make_folder(folder)
        try:
            self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _cannot_write(folder / ".lock", error) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise StoreInUseError(f"another campaign is writing to {folder}; give this one another --out") from None

    def close(self) -> None:
        for fd in (*self._files.values(), self._lock):
            os.close(fd)
        self._files.clear()
        for path in self.folder.glob("journal-*.json"):
            if path.stat().st_size == 0:
                path.unlink()

    def begin(self, record: Record, program: str) -> None:
        """Note that ``program`` is about to run; ``record`` is what stands for it should nobody come back."""
        path = self._journal(record.worker)
        data = sealed({"record": record.to_line(), "program": program}).encode()
        try:
            # In place, for every program pays for it: a process that is killed leaves a write whole or undone.
            if os.pwrite(self._opened(path), data, 0) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise _cannot_write(path, error) from None

    def end(self, record: Record) -> None:
        """Write the record of the program under way, then forget that it was."""
        path = self._records(record.worker)
        try:
            _write_whole_or_not(self._opened(path), record.to_line() + "\n")
        except OSError as error:
            raise _cannot_write(path, error) from None
        self.drop(record)

    def drop(self, record: Record) -> None:
        """Forget that the program was under way: it leaves no record."""
        os.ftruncate(self._opened(self._journal(record.worker)), 0)

    def write_findings(self, findings: list[dict[str, Any]]) -> None:
        """Write all findings anew, and return when they are on the disk itself: a finding outlives a power cut."""
        write_whole(self.folder / FINDINGS, "".join(sealed(finding) + "\n" for finding in findings), durable=True)

    def _opened(self, path: Path) -> int:
        """The file, which stays open. Raises OSError."""
        if path not in self._files:
            is_journal = path.suffix == ".json"
            self._files[path] = (
                os.open(path, os.O_RDWR | os.O_CREAT, 0o644) if is_journal else _open_at_line_start(path)
            )
        return self._files[path]

    def _records(self, worker: int) -> Path:
        return records_path(self.folder, worker)

    def _journal(self, worker: int) -> Path:
        return self.folder / f"journal-{worker}.json"


def records_path(folder: Path, worker: int) -> Path:
    """Where a worker's records stand."""
    return folder / f"records-{worker}.jsonl"


def records_paths(folder: Path) -> list[Path]:
    """The files of records that are there, of all workers."""
    return sorted(folder.glob("records-*.jsonl"))


def make_folder(folder: Path) -> None:
    """Make ``folder`` where it is missing; StoreError where it cannot be made or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    if not os.access(folder, os.W_OK):
        raise _cannot_write(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def write_whole(path: Path, text: str, durable: bool = False) -> None:
    """Put ``text`` at ``path`` so that a reader finds all of it or what was there before. Raises StoreError.

    ``durable`` waits for the disk; without it the text survives the death of every process but not a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _cannot_write(path, error) from None


def append(path: Path, lines: Sequence[str]) -> None:
    """Add whole lines to a file, or none of them. Raises StoreError."""
    try:
        with path.open("ab", buffering=0) as file:
            _write_whole_or_not(file.fileno(), "".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise _cannot_write(path, error) from None


def _write_whole_or_not(fd: int, text: str) -> None:
    """What a full disk cut short is taken back. Raises OSError."""
    size, data = os.fstat(fd).st_size, text.encode(errors="replace")
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        os.ftruncate(fd, size)
        raise


def _open_at_line_start(path: Path) -> int:
    """Open for appending; half a line left by a kill is cut off (its program is in the journal)."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    data = path.read_bytes()
    os.ftruncate(fd, data.rfind(b"\n") + 1)
    return fd


def _cannot_write(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path}: {error.strerror}; make room or give another folder; nothing before it is lost"
    )
