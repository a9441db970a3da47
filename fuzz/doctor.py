"""What runs here: for one target and interpreter, what is real, what is stood in for, which backends can be built."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.target import Target

ROOT = Path(__file__).resolve().parents[1]
# Importing a release takes 10 to 15 s on a quiet machine, several times that on a busy one.
_SURVEY_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Part:
    """One thing SGLang needs: ``state`` is real, stood in or absent."""

    name: str
    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class Backend:
    """One attention backend that the target registers; ``reason`` says why it cannot be built here, "" if it can."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """``error`` is why the target cannot be used here at all, in one line; "" if it can. ``seconds`` is wall time."""

    target: str
    python: str
    versions: dict[str, str]
    parts: tuple[Part, ...]
    backends: tuple[Backend, ...]
    error: str
    seconds: float

    @property
    def is_usable(self) -> bool:
        """Whether the target imports and any of its backends can be built."""
        return not self.error and any(not backend.reason for backend in self.backends)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "python": self.python,
            "versions": dict(self.versions),
            "parts": {part.name: {"state": part.state, "detail": part.detail} for part in self.parts},
            "backends": {backend.name: backend.reason for backend in self.backends},
            "error": self.error,
            "seconds": self.seconds,
        }


def diagnose(target: Target, python: str) -> Report:
    """Import ``target`` in a child of ``python`` and look around. What goes wrong stands in the report."""
    with tempfile.TemporaryDirectory(prefix="seamripper-doctor-") as scratch:
        answer = Path(scratch, "survey.json")
        command = [python, "-W", "ignore", "-m", "stubs.survey", str(answer)]
        try:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=_SURVEY_SECONDS,
                cwd=scratch,
                env=_environment(target),
            )
        except OSError as error:
            return _failed(target, python, f"cannot start {python}: {error.strerror}; give --python an interpreter")
        except subprocess.TimeoutExpired:
            return _failed(target, python, f"the target was not imported after {_SURVEY_SECONDS} s")
        if not answer.is_file():
            return _failed(target, python, _last_words(done))
        return _report(target, python, json.loads(answer.read_text()))


def to_table_rows(report: Report) -> list[tuple[str, str, str]]:
    """Rows of (what, state, detail): versions first, then packages, then backends."""
    rows = [(name, version or "-", "") for name, version in report.versions.items()]
    rows += [(part.name, part.state, part.detail) for part in report.parts]
    rows += [
        (f"backend {backend.name}", "cannot be built" if backend.reason else "can be built", backend.reason)
        for backend in report.backends
    ]
    return rows + ([("target", "cannot run", report.error)] if report.error else [])


def _environment(target: Target) -> dict[str, str]:
    """The target before everything else, then these sources, so that ``python`` needs nothing of ours installed."""
    ours = [str(target.folder)] if target.folder else []
    path = [*ours, str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in path if part), "OMP_NUM_THREADS": "1"}


def _report(target: Target, python: str, data: dict[str, Any]) -> Report:
    return Report(
        target=target.spec,
        python=python,
        versions=data["versions"],
        parts=tuple(Part(name, state, detail) for name, (state, detail) in data["packages"].items()),
        backends=tuple(Backend(name, reason) for name, reason in data["backends"].items()),
        error=data["error"],
        seconds=data["seconds"],
    )


def _failed(target: Target, python: str, reason: str) -> Report:
    return Report(target.spec, python, {}, (), (), reason, 0.0)


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"the child ended with status {done.returncode} and said nothing"
