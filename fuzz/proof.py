"""Saves what shows a known bug, one file a bug, and runs it where the bug is present and where it is fixed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fuzz.confirm import Confirmed
from fuzz.known_bugs import KnownBug
from fuzz.launch import ROOT, environment
from fuzz.script import Provenance, write_repro
from fuzz.store import write_whole

SCRIPT_SECONDS = 600  # it imports SGLang, on a machine that others use
CANNOT_TELL = 125


def save_script(
    repros: Path, bug: KnownBug, confirmed: Confirmed, version: str, python: str = sys.executable
) -> tuple[Path, tuple[int, ...]]:
    """(path, its exit status on present and on fixed)."""
    signature = confirmed.finding.signature
    path = repros / f"{bug.id}-{signature.slug}.py"
    provenance = Provenance(
        found_on=bug.present,
        seen_on=(bug.present,),
        shown=confirmed.shown,
        runs=confirmed.runs,
        command=f"seamripper bench --bugs, for {bug.id} ({bug.reference})",
        versions=f"sglang {version}",
    )
    text = write_repro(confirmed.program, confirmed.finding, confirmed.trace, provenance)
    write_whole(path, text)
    return path, tuple(exit_status(path, target, python) for target in (bug.present, bug.fixed))


def exit_status(script: Path, target: str, python: str = sys.executable) -> int:
    """Of the script run on the target, with stand-ins; 125 where it takes too long."""
    command = [python, "-m", "fuzz.run_script", str(script.resolve()), "--target", target]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, timeout=SCRIPT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return CANNOT_TELL
    return done.returncode
