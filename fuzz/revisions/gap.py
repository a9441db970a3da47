"""What an audit found, looked for in the source of another target: nothing is run."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from fuzz.audit import AuditReport, audit
from fuzz.installed import installed_folder
from fuzz.repro import Repro
from fuzz.revisions.sample import Run, Sample
from fuzz.targets import open_target

RELEASE = "pypi:"
# The audits of targets that are compared side by side would switch the garbage collector on for each other.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(slots=True)
class Reading:
    """One target's source, read when the first gap is looked for."""

    target: str
    python: str
    sglang_version: str = ""  # once read, where the target's name tells it
    _report: AuditReport | None = None

    def look(self, repro: Repro) -> Sample:
        """Raises TargetError."""
        try:
            return Sample((_run(repro, self._read()),))
        except FileNotFoundError as error:
            return Sample((Run("infra", str(error)),))

    def _read(self) -> AuditReport:
        if self._report is None:
            with open_target(self.target) as had, _ONE_AT_A_TIME:
                self.sglang_version = self.target.removeprefix(RELEASE) if self.target.startswith(RELEASE) else ""
                self._report = audit(had.folder or installed_folder(self.python))
        return self._report


def _run(repro: Repro, report: AuditReport) -> Run:
    assert repro.signature is not None
    _, answer, place = repro.signature.parts
    wrapper, _, name = place.partition(".")
    if wrapper not in {one.name for one in report.wrappers}:
        return Run("unsupported", f"no wrapper {wrapper} in this release")
    gaps = {row.answer: row for row in report.rows if row.gap and (row.wrapper, row.name) == (wrapper, name)}
    if answer in gaps:
        return Run("bug", str(repro.signature))
    for other, row in gaps.items():
        return Run("other", f"audit/{other}/{place}: {row.why}")
    return Run("clean", "the audit lists no such gap")
