"""Runs saved repros again: does it still show?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.comparison import Cell
from fuzz.finding import Finding
from fuzz.revisions.column import Ask, run_column
from fuzz.revisions.rig import CANNOT_TELL, NOT_SHOWN, SHOWN, Rig, Saved, read_saved, silent


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """``cell`` says what happened; ``finding`` is the fault as it showed this time."""

    path: Path
    cell: Cell
    signature: str
    finding: Finding | None

    @property
    def exit_code(self) -> int:
        return {"bug": SHOWN, "clean": NOT_SHOWN}.get(self.cell.state, CANNOT_TELL)

    def to_json(self) -> dict[str, Any]:
        finding = self.finding.to_json() if self.finding else None
        return {**self.cell.to_json(), "signature": self.signature, "finding": finding, "exit_code": self.exit_code}


def replay(path: Path, target: str | None, times: int, rig: Rig, tell: Callable[[str], None] = silent) -> ReplayResult:
    """``replay_all`` of one."""
    (result,) = replay_all([path], target, times, rig, tell)
    return result


def replay_all(
    files: Sequence[Path], target: str | None, times: int, rig: Rig, tell: Callable[[str], None] = silent
) -> list[ReplayResult]:
    """Run each repro ``times`` times on ``target`` (default: the one it was found on, else the installed SGLang).

    One worker a target. Raises ProgramError and TargetError; a worker that cannot start is an answer (infra, 125).
    """
    by_target: dict[str, list[Saved]] = {}
    for saved in map(read_saved, files):
        by_target.setdefault(target or saved.repro.found_on or "installed", []).append(saved)
    results: dict[Path, ReplayResult] = {}
    for spec, repros in by_target.items():
        tell(f"replaying {len(repros)} repro(s) on {spec}")
        for answer in run_column(spec, [Ask(saved, times) for saved in repros], rig).answers:
            saved = answer.ask.saved
            signature = str(saved.repro.signature or "")
            results[saved.path] = ReplayResult(saved.path, answer.cell(spec), signature, answer.finding)
    return [results[path] for path in files]
