"""Detached worktrees of a user's git checkout, one a revision, shared by the processes that use it."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fuzz.git import GIT_SECONDS, commit_of, git
from fuzz.target import TargetError

_LOCK_SECONDS = 2 * GIT_SECONDS


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
    commit = commit_of(checkout, revision)
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


def _shelf(checkout: Path, cache: Path) -> Path:
    """The folder for one repository's worktrees, however it was named."""
    common = Path(git(checkout, "rev-parse", "--git-common-dir").stdout.strip())
    where = (checkout / common).resolve()
    return cache / hashlib.sha256(str(where).encode()).hexdigest()[:12]


def _slips(tree: Path) -> Path:
    """The folder of slips beside the worktree; it is made when the worktree is complete."""
    return tree.with_name(f"{tree.name}.used-by")


def _add(checkout: Path, commit: str, tree: Path) -> None:
    _remove(checkout, tree)  # what an interrupted check-out left
    added = git(checkout, "worktree", "add", "--detach", "--force", str(tree), commit)
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
    git(checkout, "worktree", "prune")  # git forgets worktrees whose folder is gone


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
