"""Finds the revisions at which a bug came and went: over releases, each of them tried, or along commits, by halving.

Releases are few, so that their whole history is seen. Of commits only some are tried: both ends first, a few in
between, then halves of each stretch over which the answer changes. What came and went between two commits that were
tried, both alike, is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fuzz.bisection import BisectResult
from fuzz.git import commit_of
from fuzz.history import FIXED
from fuzz.published import between
from fuzz.revisions.commits import line_between, side_line, subject_of
from fuzz.revisions.progress import open_progress
from fuzz.revisions.rig import Rig, read_saved, silent
from fuzz.revisions.search import next_position
from fuzz.revisions.trial import Trial


def bisect_releases(
    path: Path, releases: str, times: int, rig: Rig, jobs: int = 1, tell: Callable[[str], None] = silent
) -> BisectResult:
    """Try the repro on each release of ``FIRST..LAST``, first on the one it was found on if that is among them.

    Raises ProgramError, TargetError and StoreError.
    """
    saved = read_saved(path)
    line = [f"pypi:{version}" for version in between(releases)]
    trial = Trial(saved, times, rig, open_progress(rig.out, saved.repro, {"releases": releases}), tell)
    anchor = saved.repro.found_on
    if anchor in line:
        trial.try_on([anchor], is_patient=True)
        if trial.mark(anchor) is not True:
            return _result(
                trial, line, {}, f"it does not hold on {anchor}, where it was found ({_said(trial, anchor)})"
            )
    while left := [target for target in line if trial.is_open(target)]:
        trial.try_on(left, jobs)
    return _result(trial, line, {})


def bisect_commits(
    path: Path,
    repo: Path,
    good: Sequence[str],
    bad: Sequence[str],
    times: int,
    rig: Rig,
    tell: Callable[[str], None] = silent,
) -> BisectResult:
    """Try the repro on the ``good`` and ``bad`` revisions, then on commits between them until the changes are known.

    The revisions must lie on one line of first parents. With a good one before and one behind the bad, both the
    introduction and the fix are looked for. Raises ProgramError, TargetError and StoreError.
    """
    saved, checkout = read_saved(path), repo.expanduser().resolve()
    commits = line_between(checkout, [*bad, *good])
    ends = {commit_of(checkout, revision): True for revision in bad}
    ends |= {commit_of(checkout, revision): False for revision in good}
    question = {
        "good": [c for c, is_bad in ends.items() if not is_bad],
        "bad": [c for c, is_bad in ends.items() if is_bad],
    }
    trial = Trial(saved, times, rig, open_progress(rig.out, saved.repro, question), tell)
    for commit, is_bad in ends.items():
        target = _spec(checkout, commit)
        trial.try_on([target], is_patient=is_bad)
        if trial.mark(target) is not is_bad:
            given = "bad, but the bug is not there" if is_bad else "good, but it is not clean"
            refusal = f"{subject_of(checkout, commit)} was given as {given} ({_said(trial, target)})"
            return _result(trial, [_spec(checkout, one) for one in commits], {}, refusal)
    line = _searched(trial, checkout, commits)
    result = _result(trial, line, {})
    shown = {position for change in result.changes for position in (change.first, change.last)} | {0, len(line) - 1}
    return _result(trial, line, {line[at]: subject_of(checkout, line[at].rpartition("@")[2]) for at in shown})


def refine(
    path: Path, repo: Path, result: BisectResult, times: int, rig: Rig, tell: Callable[[str], None] = silent
) -> list[BisectResult]:
    """The commits behind each change that a bisection of releases found, release X.Y.Z being tag vX.Y.Z of ``repo``.

    The state of each goes into a folder of its own below ``rig.out``. Raises as ``bisect_commits``.
    """
    found = []
    for change in result.changes:
        before, after = (f"v{result.line[at].removeprefix('pypi:')}" for at in (change.first - 1, change.last))
        good, bad = (after, before) if change.kind == FIXED else (before, after)
        within = replace(rig, out=rig.out / f"{before}..{after}" if rig.out else None)
        found.append(bisect_commits(path, repo, [good], [bad], times, within, tell))
    return found


def _searched(trial: Trial, checkout: Path, commits: list[str]) -> list[str]:
    """Try commits until nothing more is to be learnt. The line, with the commits of each merge that made a change."""
    expanded: set[str] = set()
    while True:
        line = [_spec(checkout, commit) for commit in commits]
        reopened = [target for target in line if target in trial.answers and trial.is_open(target)]
        if reopened:
            trial.try_on(reopened[:1])
            continue
        marks = {at: trial.mark(target) for at, target in enumerate(line) if target in trial.answers}
        position = next_position(marks, len(line))
        if position is not None:
            left = len(line) - len(marks)
            trial.tell(f"{subject_of(checkout, commits[position])} ({len(marks)} tried, {left} not)")
            trial.try_on([line[position]])
            continue
        made = [change.last for change in _result(trial, line, {}).changes if change.is_exact]
        merges = [at for at in made if commits[at] not in expanded and side_line(checkout, commits[at])]
        if not merges:
            return line
        expanded.add(commits[merges[0]])
        commits = [*commits[: merges[0]], *side_line(checkout, commits[merges[0]]), *commits[merges[0] :]]


def _spec(checkout: Path, commit: str) -> str:
    return f"git:{checkout}@{commit}"


def _said(trial: Trial, target: str) -> str:
    cell = trial.cell(target)
    return f"{cell.state} {cell.k}/{cell.n}: {cell.detail}"


def _result(trial: Trial, line: Sequence[str], names: dict[str, str], refusal: str = "") -> BisectResult:
    cells = tuple(trial.cell(target) for target in line if target in trial.answers)
    repro = trial.saved.repro
    return BisectResult(str(trial.saved.path), str(repro.signature or ""), tuple(line), cells, names, refusal)
