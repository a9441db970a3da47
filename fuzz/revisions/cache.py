"""Results of runs, kept from one comparison to the next: one JSON file for each repro on each content of a target.

A result is found again only for the same program and signature, the same sources of SGLang, the same device, the same
versions of Python, torch and what else computes, and the same sources of seamripper. What depended on the machine
(infra) is never kept. A file that cannot be read is as good as none, and is said to be so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.repro import Repro
from fuzz.revisions.content import executor_digest, own_digest, target_content, versions_of
from fuzz.revisions.rig import Rig
from fuzz.revisions.sample import Run, Sample
from fuzz.store import StoreError, write_whole

FORMAT = 1
_FILE_BYTES_MAX = 1 << 20  # a sample has at most some hundred runs of a line each
_STATES = ("bug", "other", "stub_gap", "unsupported", "clean")


@dataclass(frozen=True, slots=True)
class Kept:
    sample: Sample
    sglang_version: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """The results on one target. ``about`` is what they depend on, besides the program and its signature."""

    folder: Path
    about: dict[str, Any]
    tell: Callable[[str], None]

    def get(self, repro: Repro) -> Kept | None:
        """What was kept; None where there is nothing or nothing readable."""
        key = self._key(repro)
        path = self._path(key)
        try:
            with path.open("rb") as file:
                return _kept(json.loads(file.read(_FILE_BYTES_MAX)), key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self.tell(f"{path} is no result that can be read ({type(error).__name__}: {error}); it is made anew")
            return None

    def put(self, repro: Repro, sample: Sample, sglang_version: str) -> None:
        """Keep it, unless a run was of no account. A cache that cannot be written costs nothing but time, later."""
        if not sample.runs or any(run.state not in _STATES for run in sample.runs):
            return
        key = self._key(repro)
        runs = [[run.state, run.detail] for run in sample.runs]
        data = {"format": FORMAT, "key": key, "sglang_version": sglang_version, "runs": runs}
        try:
            write_whole(self._path(key), json.dumps(data) + "\n")
        except StoreError as error:
            self.tell(f"the result is not kept: {error}")

    def _key(self, repro: Repro) -> dict[str, Any]:
        program = hashlib.sha256(repro.program.text.encode()).hexdigest()
        return {**self.about, "program": program, "signature": str(repro.signature or "")}

    def _path(self, key: dict[str, Any]) -> Path:
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self.folder / name[:2] / f"{name}.json"


def open_shelf(target: str, device: str, rig: Rig, tell: Callable[[str], None]) -> Shelf | None:
    """The results on ``target``, or None where the rig keeps none. Raises TargetError."""
    if rig.results is None:
        return None
    about = {
        "content": target_content(target, rig.python),
        "device": device,
        "versions": versions_of(rig.python, device),
        "seamripper": own_digest(),
        "executor": f"{rig.executor} {executor_digest(rig.executor)}",
        "program_seconds": rig.program_seconds,
    }
    return Shelf(rig.results, about, tell)


def _kept(data: dict[str, Any], key: dict[str, Any]) -> Kept:
    """Raises ValueError, TypeError or KeyError where it is not what was written."""
    if data["format"] != FORMAT or data["key"] != key:
        raise ValueError("it was kept for something else")
    runs = tuple(Run(str(state), str(detail)) for state, detail in data["runs"])
    if not runs or any(run.state not in _STATES for run in runs):
        raise ValueError("it has runs of an unknown state")
    return Kept(Sample(runs), str(data["sglang_version"]))
