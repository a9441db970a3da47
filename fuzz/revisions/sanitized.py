"""Runs saved repros once each on a GPU under compute-sanitizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fuzz import sanitizer
from fuzz.comparison import Cell
from fuzz.finding import Finding
from fuzz.launch import WorkerOptions
from fuzz.revisions.replay import ReplayResult
from fuzz.revisions.rig import Rig, Saved, log_folder, read_runnable, silent
from fuzz.revisions.sample import Sample, own_bug, run_of
from fuzz.sanitizer import Sanitized, ToolFailure
from fuzz.targets import open_target


def replay_sanitized(
    files: Sequence[Path], target: str | None, tool: str, rig: Rig, tell: Callable[[str], None] = silent
) -> list[ReplayResult]:
    """Run each repro once on a GPU under compute-sanitizer; what the tool reports counts as shown.

    Raises SanitizerError where there is no tool; a run that comes to no end, as without a GPU, is an answer (infra,
    125).
    """
    sanitizer.find()
    results = []
    for saved in map(read_runnable, files):
        spec = target or saved.repro.found_on or "installed"
        tell(f"running {saved.path.name} on {spec} under {sanitizer.PROGRAM} {tool}")
        with open_target(spec) as had, log_folder(rig.out) as out:
            options = WorkerOptions(rig.python, had.folder, out, executor=rig.executor)
            try:
                seen = sanitizer.run(saved.repro.program, tool, options, rig.program_seconds)
            except ToolFailure as error:
                cell, finding = Cell(str(saved.path), spec, "infra", 0, 1, str(error)), None
            else:
                cell, finding = _cell(saved, spec, seen)
        results.append(ReplayResult(saved.path, cell, str(saved.repro.signature or ""), finding))
    return results


def _cell(saved: Saved, spec: str, seen: Sanitized) -> tuple[Cell, Finding | None]:
    """The tool's reports are put into the evidence of the repro's own finding; where it is not met they stand alone."""
    path, trace = str(saved.path), seen.trace
    own = own_bug(trace, saved.repro) if trace is not None else None
    version = trace.sglang_version if trace is not None else ""
    if not seen.findings:
        sample = Sample((run_of(trace, saved.repro),) if trace is not None else ())
        return Cell(path, spec, sample.state, sample.k, 1, sample.detail, version), own
    first = seen.findings[0]
    finding = first if own is None else replace(own, evidence={**own.evidence, **first.evidence})
    detail = ", ".join(str(reported.signature) for reported in seen.findings)
    return Cell(path, spec, "bug", 1, 1, detail, version), finding
