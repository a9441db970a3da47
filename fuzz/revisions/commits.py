"""The line of commits between revisions of a checkout, oldest first, for a search along it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fuzz.git import commit_of, git
from fuzz.target import TargetError


def line_between(checkout: Path, revisions: Sequence[str]) -> list[str]:
    """From the oldest of the revisions to the newest along first parents, both included. Raises TargetError."""
    named = {commit_of(checkout, revision): revision for revision in revisions}
    oldest = _end(checkout, list(named), is_oldest=True)
    newest = _end(checkout, list(named), is_oldest=False)
    line = [oldest, *_listed(checkout, f"{oldest}..{newest}")]
    for commit, revision in named.items():
        if commit not in line:
            raise TargetError(
                f"{revision} is not on the line of first parents from {named[oldest]} to {named[newest]}; give revisions "
                "of one branch"
            )
    return line


def side_line(checkout: Path, merge: str) -> list[str]:
    """What ``merge`` brought in, oldest first, without the merge itself; nothing where it is no merge."""
    parents = git(checkout, "rev-list", "--parents", "-n", "1", merge).stdout.split()[1:]
    return _listed(checkout, f"{parents[0]}..{parents[1]}") if len(parents) > 1 else []


def subject_of(checkout: Path, commit: str) -> str:
    """Abbreviated name, date and subject, on one line."""
    return git(checkout, "show", "--no-patch", "--format=%h %cs %s", commit).stdout.strip()


def _listed(checkout: Path, span: str) -> list[str]:
    return git(checkout, "rev-list", "--first-parent", "--reverse", span, "--").stdout.split()


def _end(checkout: Path, commits: list[str], *, is_oldest: bool) -> str:
    """The one of which all others are descendants (or ancestors)."""
    for commit in commits:
        pairs = [(commit, other) if is_oldest else (other, commit) for other in commits if other != commit]
        if all(git(checkout, "merge-base", "--is-ancestor", *pair).returncode == 0 for pair in pairs):
            return commit
    raise TargetError(f"none of {', '.join(commits)} is an ancestor of the others; give revisions of one branch")
