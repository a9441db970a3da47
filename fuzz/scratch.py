"""A copy of a target in which one file differs: links to everything else, so that it costs nothing to make."""

from __future__ import annotations

from pathlib import Path

CACHE = "__pycache__"


def lay_out(release: Path, copy: Path, changed: str, text: str) -> None:
    """Fill the new folder ``copy`` with what ``release`` holds, but ``changed`` (relative), which gets ``text``.

    Folders on the way to that file are made, all else in them is linked, its siblings' bytecode included.
    """
    here, there = release.resolve(), copy
    for part in Path(changed).parts:
        there.mkdir(parents=True)
        for entry in here.iterdir():
            if entry.name not in (part, CACHE):
                (there / entry.name).symlink_to(entry)
        _link_bytecode(here / CACHE, there / CACHE, Path(changed).stem)
        here, there = here / part, there / part
    there.write_text(text, encoding="utf-8")


def _link_bytecode(cache: Path, copy: Path, stem: str) -> None:
    """Link what is compiled already. Of the changed file nothing: bytecode is told by size and whole seconds alone."""
    if not cache.is_dir():
        return
    copy.mkdir()
    for entry in cache.iterdir():
        if entry.name.partition(".")[0] != stem:
            (copy / entry.name).symlink_to(entry)
