"""Released versions of SGLang: downloaded once with pip, unpacked into a cache, without their requirements."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from filelock import FileLock, Timeout
from packaging.version import InvalidVersion, Version

from fuzz.target import TargetError

_MARKER = ".complete"
# A wheel has up to 40 MB and a slow line takes minutes for it; another process may be at it just before us.
_DOWNLOAD_SECONDS = 900
_LOCK_SECONDS = 2 * _DOWNLOAD_SECONDS
_ATTEMPTS = 2  # a broken download is tried once more; what is broken twice is broken at its source


def parse_version(text: str) -> str:
    """The version in its normal form. Raises TargetError."""
    try:
        return str(Version(text))
    except InvalidVersion:
        raise TargetError(f"target 'pypi:{text}': {text!r} is no version; expected something like 0.5.16") from None


def fetch(version: str, cache: Path) -> Path:
    """The folder that holds the release's ``sglang/``, from the cache if it is there. Raises TargetError.

    Wheels are built per Python version, so that each has a folder of its own.
    """
    folder = cache / f"sglang-{version}-cp{sys.version_info.major}{sys.version_info.minor}"
    if _is_complete(folder):
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock", timeout=_LOCK_SECONDS):
            if not _is_complete(folder):
                _clear(folder)
                _install(version, folder)
    except Timeout:
        raise TargetError(f"release {version}: another process has held {folder}.lock too long; is it stuck?") from None
    except OSError as error:
        raise TargetError(f"release {version} cannot be stored under {cache}: {error}") from error
    return folder


def _install(version: str, folder: Path) -> None:
    """Download, unpack beside ``folder``, and rename: the folder appears complete or not at all."""
    for attempt in range(1, _ATTEMPTS + 1):
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", suffix=".partial", dir=folder.parent) as scratch:
            wheel = _download(version, Path(scratch))
            unpacked = Path(scratch, "unpacked")
            try:
                _unpack(wheel, unpacked)
            except zipfile.BadZipFile as error:
                if attempt == _ATTEMPTS:
                    raise TargetError(f"release {version}: the wheel is broken each time ({error})") from None
                continue
            os.replace(unpacked, folder)
            return


def _download(version: str, scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(scratch), f"sglang=={version}"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS)
    except subprocess.TimeoutExpired:
        raise TargetError(f"release {version}: pip took more than {_DOWNLOAD_SECONDS} s; try again") from None
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    raise TargetError(f"release {version} cannot be downloaded: {_reason(done.stdout + done.stderr)}")


def _reason(output: str) -> str:
    """What pip's words come to, in one line."""
    if "No module named pip" in output:
        return f"{sys.executable} has no pip; install it there, or use path:DIR"
    if "from versions: none" in output:
        return "pip finds no release of sglang for this Python at all; is the network or the index out of reach?"
    if "No matching distribution" in output:
        return "there is no such release for this Python and platform; `pip index versions sglang` lists them"
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].removeprefix("ERROR: ") if lines else "pip failed and said nothing"


def _unpack(wheel: Path, folder: Path) -> None:
    """Raises BadZipFile where the wheel is cut short, damaged or not SGLang's."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)  # checks each file's sum
    if not (folder / "sglang" / "__init__.py").is_file():
        raise zipfile.BadZipFile("it holds no sglang/ package")
    (folder / _MARKER).write_text(f"{_count(folder)}\n")


def _is_complete(folder: Path) -> bool:
    """Unpacked to the end, and no file lost since (cleaners of temporary folders delete old files one by one)."""
    try:
        return int((folder / _MARKER).read_text()) == _count(folder)
    except (OSError, ValueError):
        return False


def _count(folder: Path) -> int:
    """Files of the release: not the marker, nor what Python compiles beside them."""
    names = (name for where, _, files in os.walk(folder) if Path(where).name != "__pycache__" for name in files)
    return sum(name != _MARKER for name in names)


def _clear(folder: Path) -> None:
    """Remove the folder and what an interrupted download of it left. Only under the lock."""
    for leftover in (folder, *folder.parent.glob(f"{folder.name}.*.partial")):
        if leftover.exists():
            shutil.rmtree(leftover)
