"""Known bugs that reading the source finds: does the audit list each where it is present, and not where it is fixed?"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from fuzz.audit import AuditReport, Row, audit
from fuzz.gap_script import gap_signature, save_gap
from fuzz.hunted import BOTH, DETECTED, MISSED, UNCLEAR, Hunted
from fuzz.known_bugs import KnownBug
from fuzz.proof import exit_status
from fuzz.targets import TargetError, open_target


def said(row: Row) -> str:
    """What a bug's ``match`` is searched for in."""
    return f"{row.wrapper}.{row.name} is {row.answer}: {row.why}"


class Audits:
    """Reads each release once. ``repros`` is where scripts go, None for nowhere; ``python`` runs them."""

    def __init__(self, repros: Path | None = None, python: str = sys.executable) -> None:
        self._repros, self._python = repros, python
        self._reports: dict[str, AuditReport] = {}

    def look(self, bug: KnownBug) -> Hunted:
        """Gaps alone count: what ranks below them is a candidate that nobody is told of."""
        started = time.monotonic()
        try:
            present, fixed = (self._matching(bug, target) for target in (bug.present, bug.fixed))
        except (TargetError, FileNotFoundError) as error:
            return Hunted(bug, 0, 0.0, UNCLEAR, oracle="audit", detail=str(error))
        seconds = round(time.monotonic() - started, 1)
        if not present:
            return Hunted(bug, 0, 0.0, MISSED, oracle="audit", seconds=seconds)
        rank, row = present[0]
        state, detail = (BOTH, f"{bug.fixed} has it, too: {said(fixed[0][1])}") if fixed else (DETECTED, f"row {rank}")
        signature = str(gap_signature(row))
        result = Hunted(bug, 0, 0.0, state, "audit", signature, said(row), seconds=seconds, detail=detail)
        return self._saved(result, row) if state == DETECTED else result

    def _saved(self, result: Hunted, row: Row) -> Hunted:
        if self._repros is None:
            return result
        bug = result.bug
        command = f"seamripper bench --bugs, for {bug.id} ({bug.reference})"
        script = save_gap(self._repros, row, bug.present, command, prefix=f"{bug.id}-")
        exits = tuple(exit_status(script, target, self._python) for target in (bug.present, bug.fixed))
        return replace(result, script=str(script), exits=exits)

    def _matching(self, bug: KnownBug, target: str) -> list[tuple[int, Row]]:
        """(rank from 1, row)."""
        if target not in self._reports:
            with open_target(target) as opened:
                if opened.folder is None:
                    raise TargetError("target 'installed' cannot be read here; expected pypi:, path: or git:")
                self._reports[target] = audit(opened.folder)
        rows = enumerate(self._reports[target].rows, start=1)
        return [(rank, row) for rank, row in rows if row.gap and bug.matches(said(row))]
