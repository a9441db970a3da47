"""What results depend on, as short texts that are equal only for equal things: SGLang's sources, ours, and versions."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from fuzz.git import tree_of
from fuzz.installed import installed_folder
from fuzz.launch import ROOT
from fuzz.target import TargetError
from fuzz.targets import git_parts, resolve

ROOMS = ("fuzz", "stubs")  # what takes part in a run; reports only read
PACKAGES = ("torch", "triton", "numpy", "transformers")  # what computes, and what SGLang's configs come from
_PROGRAM = """
import json, sys
from importlib import metadata
def version(name):
    try: return metadata.version(name)
    except metadata.PackageNotFoundError: return ""
found = {"python": sys.version.split()[0], **{name: version(name) for name in sys.argv[2:]}}
if sys.argv[1] == "cuda":
    import torch
    found["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
print(json.dumps(found))
"""
_SECONDS = 120  # an interpreter starts in well under one; importing torch from a cold disk takes its time


def target_content(spec: str, python: str) -> str:
    """A text that names the sources that ``spec`` stands for. Downloads a release. Raises TargetError.

    Of a git revision it is the tree of its ``python/`` folder, so that commits elsewhere change nothing; of a release
    its version and list of files with their sums; of a folder the text of its Python files.
    """
    scheme, _, rest = spec.partition(":")
    if scheme == "git" and rest:
        return f"git {tree_of(*git_parts(spec))}"
    target = resolve(spec)
    try:
        folder = target.folder or installed_folder(python)
        if scheme == "pypi":
            records = b"".join(path.read_bytes() for path in sorted(folder.glob("*.dist-info/RECORD")))
            return f"{target.label} {hashlib.sha256(records).hexdigest()}"
        return f"files {_digest(folder, folder / 'sglang')}"
    except OSError as error:
        raise TargetError(f"target {spec!r} cannot be read: {error}") from None
    finally:
        target.cleanup()


@lru_cache(maxsize=4)
def versions_of(python: str, device: str) -> dict[str, str]:
    """Of Python and the packages that compute, in that interpreter; with a GPU its name. Raises TargetError."""
    command = [python, "-c", _PROGRAM, device, *PACKAGES]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise TargetError(f"{python} does not say its versions ({error}); give --python an interpreter") from None
    return found


@lru_cache(maxsize=1)
def own_digest() -> str:
    """Of seamripper's own sources, as they are when first asked for."""
    return _digest(ROOT, *(ROOT / room for room in ROOMS))


def executor_digest(name: str) -> str:
    """Of an executor's file: the usual one is among our own sources, others may lie elsewhere."""
    found = importlib.util.find_spec(name)
    return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest() if found and found.origin else ""


def _digest(root: Path, *folders: Path) -> str:
    """Of the names and texts of all Python files in the folders."""
    digest = hashlib.blake2b(digest_size=16)
    for path in (path for folder in folders for path in _python_files(folder)):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(root)}\0{len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()


def _python_files(folder: Path) -> Iterator[Path]:
    """In a fixed order, links followed: a copy of a target may be made of them."""
    for where, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        yield from (Path(where, name) for name in sorted(files) if name.endswith(".py"))
