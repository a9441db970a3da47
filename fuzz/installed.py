"""Where an interpreter's own SGLang lies, found without importing it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fuzz.target import TargetError

_PROGRAM = (
    "from importlib.util import find_spec as f; s = f('sglang'); print(s.submodule_search_locations[0] if s else '')"
)
_SECONDS = 60  # an interpreter starts in well under one; a cold network disk may take its time


def installed_folder(python: str) -> Path:
    """The folder that holds ``sglang/`` for ``python``. Raises TargetError."""
    try:
        done = subprocess.run([python, "-c", _PROGRAM], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetError(
            f"target 'installed': {python} does not run ({error}); give --python an interpreter"
        ) from None
    where = done.stdout.strip()
    if done.returncode or not where:
        raise TargetError(
            f"target 'installed': {python} has no sglang; install it there, or use pypi:VERSION or path:DIR"
        )
    return Path(where).parent
