"""Releases: unpacked into the cache once, whatever is cut off, lost or broken meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fuzz import releases
from fuzz.targets import TargetError, resolve
from tests.fuzz.origins import resolve_elsewhere

PYTHON_TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"


def test_release_is_unpacked_into_the_cache(tmp_path: Path, index: Path) -> None:
    target = resolve("pypi:9.9.0", tmp_path / "cache")
    assert target.folder == tmp_path / "cache" / "pypi" / f"sglang-9.9.0-{PYTHON_TAG}"
    assert (target.folder / "sglang" / "srt" / "server_args.py").is_file()
    assert target.label == target.key == "pypi-9.9.0"


def test_cached_release_needs_no_index(tmp_path: Path, index: Path) -> None:
    resolve("pypi:9.9.0", tmp_path / "cache")
    (index / "sglang-9.9.0-py3-none-any.whl").unlink()
    assert resolve("pypi:9.9.0", tmp_path / "cache").folder is not None


def test_release_that_does_not_exist(tmp_path: Path, index: Path) -> None:
    with pytest.raises(TargetError, match=r"release 9\.9\.1 cannot be downloaded: there is no such release"):
        resolve("pypi:9.9.1", tmp_path / "cache")


def test_index_out_of_reach(tmp_path: Path, index: Path) -> None:
    (index / "sglang-9.9.0-py3-none-any.whl").unlink()
    with pytest.raises(TargetError, match="is the network or the index out of reach"):
        resolve("pypi:9.9.0", tmp_path / "cache")


def test_interrupted_unpacking_starts_again(tmp_path: Path, index: Path) -> None:
    cache = tmp_path / "cache" / "pypi"
    (cache / f"sglang-9.9.0-{PYTHON_TAG}" / "sglang").mkdir(parents=True)
    (cache / f"sglang-9.9.0-{PYTHON_TAG}.abc.partial").mkdir()
    folder = resolve("pypi:9.9.0", tmp_path / "cache").folder
    assert folder is not None
    assert (folder / "sglang" / "__init__.py").is_file()
    assert list(cache.glob("*.partial")) == []


def test_file_lost_from_the_cache_is_fetched_again(tmp_path: Path, index: Path) -> None:
    folder = resolve("pypi:9.9.0", tmp_path / "cache").folder
    assert folder is not None
    (folder / "sglang" / "srt" / "server_args.py").unlink()
    resolve("pypi:9.9.0", tmp_path / "cache")
    assert (folder / "sglang" / "srt" / "server_args.py").is_file()


def test_compiled_files_leave_the_cache_complete(tmp_path: Path, index: Path) -> None:
    folder = resolve("pypi:9.9.0", tmp_path / "cache").folder
    assert folder is not None
    (folder / "sglang" / "__pycache__").mkdir()
    (folder / "sglang" / "__pycache__" / "x.pyc").touch()
    (index / "sglang-9.9.0-py3-none-any.whl").unlink()
    assert resolve("pypi:9.9.0", tmp_path / "cache").folder == folder


def broken(times: int) -> Callable[[str, Path], Path]:
    """pip, whose first ``times`` downloads are cut off in the middle."""
    download, left = releases._download, [times]

    def cut_off(version: str, scratch: Path) -> Path:
        wheel = download(version, scratch)
        if left[0]:
            left[0] -= 1
            wheel.write_bytes(wheel.read_bytes()[:200])
        return wheel

    return cut_off


def test_broken_wheel_is_downloaded_again(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "_download", broken(times=1))
    folder = resolve("pypi:9.9.0", tmp_path / "cache").folder
    assert folder is not None
    assert (folder / "sglang" / "__init__.py").is_file()


def test_wheel_broken_each_time_leaves_nothing(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "_download", broken(times=9))
    with pytest.raises(TargetError, match=r"release 9\.9\.0: the wheel is broken each time"):
        resolve("pypi:9.9.0", tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache" / "pypi").iterdir() if path.suffix != ".lock"] == []


def test_four_processes_at_once_download_once(tmp_path: Path, index: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(4) as pool:
        folders = {each[0] for each in pool.map(lambda _: resolve_elsewhere("pypi:9.9.0", cache), range(4))}
    assert folders == {str(cache / "pypi" / f"sglang-9.9.0-{PYTHON_TAG}")}
    assert (cache / "pypi" / f"sglang-9.9.0-{PYTHON_TAG}" / "sglang" / "__init__.py").is_file()


def test_resolving_imports_neither_sglang_nor_torch(tmp_path: Path, index: Path) -> None:
    assert resolve_elsewhere("pypi:9.9.0", tmp_path)[1:] == (False, False)


@pytest.mark.release
def test_release_from_the_index(target_folder: Callable[[str], Path]) -> None:
    assert (target_folder("0.5.16") / "sglang" / "srt" / "layers" / "attention" / "hybrid_attn_backend.py").is_file()
