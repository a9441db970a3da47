"""From a target's spec to the folder that its SGLang is imported from; never imports it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import platformdirs

from fuzz import releases, worktrees
from fuzz.target import Target, TargetError

__all__ = [
    "CACHE_VARIABLE",
    "SCHEMES",
    "Target",
    "TargetError",
    "default_cache",
    "default_results",
    "git_parts",
    "open_target",
    "resolve",
]

CACHE_VARIABLE = "SEAMRIPPER_CACHE"
SCHEMES = ("pypi", "path", "git")  # of specs; the one other spec is "installed"
_EXPECTED = "installed, pypi:VERSION, path:DIR or git:DIR@REV"
# The revision is what follows the last @, except that of HEAD@{1}.
_GIT = re.compile(r"(?P<folder>.+)@(?P<revision>[^@{][^@]*(?:@\{[^}]*\})?)")


def default_cache() -> Path:
    """Where releases and worktrees are kept: $SEAMRIPPER_CACHE, or the user's cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).expanduser() if named else platformdirs.user_cache_path("seamripper")


def default_results() -> Path:
    """Where the results of runs are kept, beside the releases."""
    return default_cache() / "results"


def resolve(spec: str, cache_dir: Path | None = None) -> Target:
    """The target that ``spec`` names, downloaded or checked out if need be. Raises TargetError.

    Safe to call from several processes at once. Call ``cleanup()`` on the target when done, or use ``open_target``.
    """
    scheme, _, rest = spec.partition(":")
    cache = cache_dir if cache_dir is not None else default_cache()
    if spec == "installed":
        return Target(spec, None, "installed", None)
    if scheme == "pypi" and rest:
        return _release(spec, rest, cache)
    if scheme == "path" and rest:
        return _path(spec, rest)
    if scheme == "git" and rest:
        return _revision(spec, cache)
    raise TargetError(f"target {spec!r} is not understood; expected {_EXPECTED}")


@contextmanager
def open_target(spec: str, cache_dir: Path | None = None) -> Iterator[Target]:
    """``resolve``, with ``cleanup`` at the end."""
    target = resolve(spec, cache_dir)
    try:
        yield target
    finally:
        target.cleanup()


def git_parts(spec: str) -> tuple[Path, str]:
    """The checkout and the revision that ``git:DIR@REV`` names. Raises TargetError."""
    match = _GIT.fullmatch(spec.removeprefix("git:"))
    if match is None:
        raise TargetError(f"target {spec!r} names no revision; expected git:DIR@REV")
    return Path(match["folder"]).expanduser().resolve(), match["revision"]


def _release(spec: str, rest: str, cache: Path) -> Target:
    version = releases.parse_version(rest)
    folder = releases.fetch(version, cache / "pypi")
    return Target(spec, folder, f"pypi-{version}", f"pypi-{version}")


def _path(spec: str, rest: str) -> Target:
    folder = Path(rest).expanduser().resolve()
    if not folder.is_dir():
        raise TargetError(f"target {spec!r}: {folder} is no folder; expected one that holds sglang/")
    if not _holds_sglang(folder):
        raise TargetError(f"target {spec!r}: {folder} holds no sglang/ package{_hint(folder)}")
    return Target(spec, folder, f"path-{_slug(folder.name)}", f"path-{_stamp(folder)}")


def _revision(spec: str, cache: Path) -> Target:
    lease = worktrees.check_out(*git_parts(spec), cache / "git")
    release = partial(worktrees.give_back, lease)
    folder = next((inside for inside in (lease.tree / "python", lease.tree) if _holds_sglang(inside)), None)
    if folder is None:
        release()
        raise TargetError(f"target {spec!r}: revision {lease.commit[:12]} has neither python/sglang/ nor sglang/")
    return Target(spec, folder, f"git-{lease.commit[:12]}", f"git-{lease.commit}", release)


def _holds_sglang(folder: Path) -> bool:
    return (folder / "sglang" / "__init__.py").is_file()


def _hint(folder: Path) -> str:
    """Where the package is, if the user was one folder off."""
    for near in (folder / "python", folder.parent):
        if _holds_sglang(near):
            return f"; did you mean path:{near}?"
    return "; name the folder that has sglang/__init__.py in it"


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "root"


def _stamp(folder: Path) -> str:
    """A digest of names, sizes and times of the Python files: it changes when one is edited."""
    digest = hashlib.sha256(str(folder).encode())
    for path in sorted((folder / "sglang").rglob("*.py")):
        status = path.stat()
        digest.update(f"{path.relative_to(folder)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
