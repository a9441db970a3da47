"""Git, asked about a user's checkout; hooks and variables of the surroundings do not get in the way."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from fuzz.target import TargetError

GIT_SECONDS = 600  # checking out SGLang takes seconds; a network drive may take minutes


def git(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git there, whatever status it ends with. Raises TargetError where there is no git, or it takes for ever."""
    # Hooks of the user's checkout are none of our business.
    command = ["git", "-C", str(checkout), "-c", f"core.hooksPath={os.devnull}", *arguments]
    # Inside a git hook these variables name another repository.
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=GIT_SECONDS, env=elsewhere)
    except FileNotFoundError:
        raise TargetError("a git: target needs git; install it, or use path:DIR") from None
    except subprocess.TimeoutExpired:
        raise TargetError(f"git {arguments[0]} took more than {GIT_SECONDS} s in {checkout}") from None


def commit_of(checkout: Path, revision: str) -> str:
    """The full name of the commit. Raises TargetError."""
    if not checkout.is_dir():
        raise TargetError(f"target 'git:{checkout}@{revision}': {checkout} is no folder; expected a git checkout")
    if git(checkout, "rev-parse", "--git-dir").returncode != 0:
        raise TargetError(f"target 'git:{checkout}@{revision}': {checkout} is no git checkout")
    found = git(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found.returncode != 0:
        raise TargetError(f"target 'git:{checkout}@{revision}': no revision {revision!r} there; fetch it first?")
    return found.stdout.strip().splitlines()[-1]


def tree_of(checkout: Path, revision: str) -> str:
    """The name of what SGLang is imported from at that revision: its folder ``python/``, else all of it."""
    commit = commit_of(checkout, revision)
    for place in (f"{commit}:python", f"{commit}^{{tree}}"):
        found = git(checkout, "rev-parse", "--verify", "--quiet", place)
        if found.returncode == 0:
            break
    return found.stdout.strip()
