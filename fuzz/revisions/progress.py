"""What a bisection has found so far, on disk after each step, so that the same command goes on where it ended."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.repro import Repro
from fuzz.revisions.sample import Run, Sample
from fuzz.store import StoreError, write_whole

FILE = "bisect.json"
FORMAT = 1


@dataclass(slots=True)
class Progress:
    """A held resource: the samples by target, and the file that they are in (None: nowhere)."""

    path: Path | None
    about: dict[str, Any]
    samples: dict[str, Sample] = field(default_factory=dict)

    def add(self, target: str, sample: Sample) -> None:
        """Raises StoreError where it cannot be written."""
        self.samples[target] = sample
        if self.path is not None:
            samples = {name: [[run.state, run.detail] for run in had.runs] for name, had in self.samples.items()}
            write_whole(self.path, json.dumps({"format": FORMAT, **self.about, "samples": samples}, indent=1) + "\n")


def open_progress(out: Path | None, repro: Repro, question: dict[str, Any]) -> Progress:
    """What an earlier run of the same question left in ``out``. StoreError if that is the state of another question.

    Runs that the machine spoilt (infra) are forgotten, to be made again.
    """
    about = {
        "program": hashlib.sha256(repro.program.text.encode()).hexdigest(),
        "signature": str(repro.signature or ""),
        "question": question,
    }
    if out is None:
        return Progress(None, about)
    path = out / FILE
    if not path.exists():
        return Progress(path, about)
    try:
        data = json.loads(path.read_text())
        is_ours = data["format"] == FORMAT and all(data[name] == value for name, value in about.items())
        samples = {target: Sample(tuple(Run(*run) for run in runs)) for target, runs in data["samples"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise StoreError(f"{path} is no state of a bisection; remove it or give another --out") from None
    if not is_ours:
        raise StoreError(f"{path} is the state of another bisection; give another --out, or remove it")
    kept = {target: sample for target, sample in samples.items() if all(run.state != "infra" for run in sample.runs)}
    return Progress(path, about, kept)
