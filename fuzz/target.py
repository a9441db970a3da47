"""A target: the SGLang under test, as a folder to import it from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


class TargetError(ValueError):
    """A target that cannot be had; the one-line message says what was given, what was expected, what to do."""


def nothing_to_release() -> None:
    """Targets other than a git revision hold nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """``folder`` goes first on ``sys.path`` of a worker; None means the interpreter's own SGLang.

    ``label`` is short and safe as a file name. ``key`` is equal only for equal sources, as far as can be told
    without reading them; results may be cached under it. ``installed`` has no such key: it is None.
    """

    spec: str
    folder: Path | None
    label: str
    key: str | None
    release: Callable[[], None] = field(default=nothing_to_release, compare=False, repr=False)

    def cleanup(self) -> None:
        """Give back what the target holds (a git worktree). Safe to call twice; the folder may be gone afterwards."""
        self.release()
