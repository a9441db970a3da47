"""What tests of campaigns share: options, a Progress that remembers, what an out folder holds, faults to be found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.campaign import CampaignOptions, CampaignResult
from fuzz.launch import ROOT
from fuzz.process import Ready
from fuzz.record import Record

ON_DECODE = """
import ctypes, os, signal, time

class Backend:
    def forward_decode(self, seed):
        {statement}

def step(kind, seed):
    if kind == "decode":
        Backend().forward_decode(seed)
"""
# Five faults of which some are rare; a step takes a millisecond.
FAULTY = """
import time

class Backend:
    def forward(self, kind, seed):
        if kind == "retract" and seed % 5 == 0:
            raise KeyError("rare")
        if kind == "decode" and seed % 7 == 0:
            raise ValueError("decode")
        if kind == "mixed" and seed % 11 == 0:
            self.deeper(seed)
        if kind == "finish" and seed % 29 == 3:
            raise OSError("very rare")

    def deeper(self, seed):
        raise (KeyError if seed % 2 else RuntimeError)("deeper")

def step(kind, seed):
    time.sleep(0.001)
    Backend().forward(kind, seed)
"""
FAULTS = {
    "contract/KeyError/Backend.forward",
    "contract/ValueError/Backend.forward",
    "contract/KeyError/Backend.deeper",
    "contract/RuntimeError/Backend.deeper",
    "contract/OSError/Backend.forward",
}
FAKE_EXECUTOR = "tests.fuzz.fake_executor"
DRIVER = """
from pathlib import PosixPath
from fuzz.campaign import CampaignOptions, run_campaign

class Silent:
    started = program_done = finding = phase = note = finished = lambda *told: None

run_campaign({options!r}, Silent())
"""


def write_target(folder: Path, source: str, version: str = "9.1") -> Path:
    """``folder``, with a package ``sglang`` in it that has this source."""
    package = folder / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"__version__ = {version!r}\n{source}")
    return folder


def campaign(folder: Path, target: Path, /, **fields: Any) -> CampaignOptions:
    """Twelve programs on ``target``, unless told otherwise; all that they leave is below ``folder``."""
    options = CampaignOptions(
        target=f"path:{target}",
        repros=folder / "repros",
        out=folder / "out",
        python=sys.executable,
        programs=12,
        executor=FAKE_EXECUTOR,
    )
    return replace(options, **fields)


def on_decode(statement: str) -> str:
    return ON_DECODE.format(statement=statement)


class Log:
    """A Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.pairs: tuple[str, ...] = ()
        self.records: list[Record] = []
        self.findings: list[dict[str, Any]] = []
        self.phases: list[str] = []
        self.notes: list[str] = []
        self.result: CampaignResult | None = None
        self.on_record: Callable[[Record], None] = lambda record: None
        self.on_phase: Callable[[str], None] = lambda text: None

    def started(self, options: CampaignOptions, ready: Ready, pairs: tuple[str, ...]) -> None:
        self.pairs = pairs

    def program_done(self, record: Record) -> None:
        self.records.append(record)
        self.on_record(record)

    def finding(self, finding: dict[str, Any]) -> None:
        self.findings.append(dict(finding))

    def phase(self, text: str) -> None:
        self.phases.append(text)
        self.on_phase(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, result: CampaignResult) -> None:
        self.result = result


def records(out: Path) -> list[Record]:
    return [
        Record.from_line(line) for path in sorted(out.glob("records-*.jsonl")) for line in path.read_text().splitlines()
    ]


def findings(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "findings.jsonl").read_text().splitlines()]


def start(options: CampaignOptions) -> subprocess.Popen[bytes]:
    """The campaign in a process of its own, to be killed."""
    return subprocess.Popen([sys.executable, "-c", DRIVER.format(options=options)], cwd=ROOT)
