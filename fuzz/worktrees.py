"""Detached worktrees of a user's git checkout, one a revision, shared by the processes that use it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fuzz.target import TargetError

# Checking out SGLang takes seconds; a network drive may take minutes.
_GIT_SECONDS = 600
_LOCK_SECONDS = 2 * _GIT_SECONDS


@dataclass(frozen=True, slots=True)
class Lease:
    """One process's right to a worktree. ``slip`` is the file that says so, named by the process's id."""

    checkout: Path
    commit: str
    tree: Path
    slip: Path


def check_out(checkout: Path, revision: str, cache: Path) -> Lease:
    """Lay out ``revision`` of ``checkout``, or join those who use it already. Raises TargetError.

    Worktrees whose processes have died are removed on the way.
    """
    commit = _commit(checkout, revision)
    shelf = _shelf(checkout, cache)
    tree = shelf / commit
    lease = Lease(checkout, commit, tree, _slips(tree) / f"{os.getpid()}-{uuid.uuid4().hex}")
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        with _lock(shelf):
            _sweep(checkout, shelf)
            if not _slips(tree).is_dir():
                _add(checkout, commit, tree)
            lease.slip.parent.mkdir(exist_ok=True)
            lease.slip.touch()
    except OSError as error:
        raise TargetError(f"revision {revision} cannot be laid out under {cache}: {error}") from error
    return lease


def give_back(lease: Lease) -> None:
    """End the lease; the last to do so removes the worktree."""
    shelf = lease.tree.parent
    if not shelf.is_dir():
        return
    with _lock(shelf):
        lease.slip.unlink(missing_ok=True)
        _sweep(lease.checkout, shelf)


def _commit(checkout: Path, revision: str) -> str:
    if not checkout.is_dir():
        raise TargetError(f"target 'git:{checkout}@{revision}': {checkout} is no folder")
    if _git(checkout, "rev-parse", "--git-dir").returncode != 0:
        raise TargetError(f"target 'git:{checkout}@{revision}': {checkout} is no git checkout")
    found = _git(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found.returncode != 0:
        raise TargetError(f"target 'git:{checkout}@{revision}': no revision {revision!r} there; fetch it first?")
    return found.stdout.strip().splitlines()[-1]


def _shelf(checkout: Path, cache: Path) -> Path:
    """The folder for one repository's worktrees, however it was named."""
    common = Path(_git(checkout, "rev-parse", "--git-common-dir").stdout.strip())
    where = (checkout / common).resolve()
    return cache / hashlib.sha256(str(where).encode()).hexdigest()[:12]


def _slips(tree: Path) -> Path:
    """The folder of slips beside the worktree; it is made when the worktree is complete."""
    return tree.with_name(f"{tree.name}.used-by")


def _add(checkout: Path, commit: str, tree: Path) -> None:
    _remove(checkout, tree)  # what an interrupted check-out left
    added = _git(checkout, "worktree", "add", "--detach", "--force", str(tree), commit)
    if added.returncode != 0:
        _remove(checkout, tree)
        raise TargetError(f"revision {commit[:12]} cannot be laid out: {added.stderr.strip().splitlines()[-1]}")


def _sweep(checkout: Path, shelf: Path) -> None:
    """Remove the worktrees that no living process has a slip for. Only under the lock."""
    for slips in shelf.glob("*.used-by"):
        for slip in slips.iterdir():
            if not _is_alive(int(slip.name.partition("-")[0])):
                slip.unlink(missing_ok=True)
        if not any(slips.iterdir()):
            slips.rmdir()
            _remove(checkout, slips.with_name(slips.name.removesuffix(".used-by")))


def _remove(checkout: Path, tree: Path) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    _git(checkout, "worktree", "prune")  # git forgets worktrees whose folder is gone


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # someone else's, and alive
        return True
    return True


@contextmanager
def _lock(shelf: Path) -> Iterator[None]:
    lock = FileLock(f"{shelf}.lock", timeout=_LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        raise TargetError(f"another process has held {shelf}.lock too long; is it stuck?") from None
    try:
        yield
    finally:
        lock.release()


def _git(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Hooks of the user's checkout are none of our business.
    command = ["git", "-C", str(checkout), "-c", f"core.hooksPath={os.devnull}", *arguments]
    # Inside a git hook these variables name another repository.
    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=_GIT_SECONDS, env=elsewhere)
    except FileNotFoundError:
        raise TargetError("a git: target needs git; install it, or use path:DIR") from None
    except subprocess.TimeoutExpired:
        raise TargetError(f"git {arguments[0]} took more than {_GIT_SECONDS} s in {checkout}") from None
