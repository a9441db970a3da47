"""Which versions of SGLang there are to download, as pip finds them."""

from __future__ import annotations

import re
import subprocess
import sys

from packaging.version import InvalidVersion, Version

from fuzz.target import TargetError

_SECONDS = 120  # one question to an index; pip itself gives up on a dead one after some tries
_VERSIONS = re.compile(r"^Available versions: (.+)$", re.MULTILINE)


def between(text: str) -> list[str]:
    """The releases of ``FIRST..LAST``, both included, oldest first: a post-release follows its release.

    Raises TargetError: not such a range, or no release in it that this Python can have.
    """
    first, last = _range(text)
    found = sorted(version for version in _published() if first <= version <= last)
    if not found:
        raise TargetError(f"no release of sglang from {first} to {last} is to be had for this Python")
    return [str(version) for version in found]


def _range(text: str) -> tuple[Version, Version]:
    first, dots, last = text.partition("..")
    try:
        ends = Version(first), Version(last)
    except InvalidVersion:
        raise TargetError(f"{text!r} is no range of releases; expected FIRST..LAST, such as 0.5.13..0.5.23") from None
    if not dots or ends[0] > ends[1]:
        raise TargetError(f"{text!r} ends before it begins; expected the older release first")
    return ends


def _published() -> list[Version]:
    command = [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", "sglang"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise TargetError(f"pip did not list the releases of sglang within {_SECONDS} s; try again") from None
    listed = _VERSIONS.search(done.stdout)
    if done.returncode != 0 or listed is None:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise TargetError(f"pip cannot list the releases of sglang: {lines[-1].removeprefix('ERROR: ')}")
    return [Version(text) for text in listed[1].split(", ")]
