"""Targets: specs, the cache of releases, worktrees of revisions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fuzz import releases, targets
from fuzz.targets import TargetError, open_target, resolve

PYTHON_TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all pip may look in, with one release, 9.9.0."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    write_wheel(folder, "9.9.0")
    return folder


def write_wheel(folder: Path, version: str) -> Path:
    info = f"sglang-{version}.dist-info"
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("sglang/__init__.py", f"raise SystemExit('{version} was imported')\n")
        wheel.writestr("sglang/srt/server_args.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with tags: v1 has python/sglang, v2 has sglang at the root, v3 has neither."""
    folder = tmp_path / "checkout"
    (folder / "python" / "sglang").mkdir(parents=True)
    (folder / "python" / "sglang" / "__init__.py").write_text("one = 1\n")
    git(folder, "init", "-q")
    for tag, change in (("v1", ()), ("v2", ("mv", "python/sglang", "sglang")), ("v3", ("mv", "sglang", "other"))):
        if change:
            git(folder, *change)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", tag)
        git(folder, "tag", tag)
    return folder


def worktree_count(checkout: Path) -> int:
    return len(git(checkout, "worktree", "list").splitlines()) - 1


# Specs


def test_installed_has_no_folder() -> None:
    assert resolve("installed").folder is None


@pytest.mark.parametrize("spec", ["", "pypi", "pypi:", "path:", "git:", "conda:0.5.16", "installed:0.5.16"])
def test_unknown_spec_names_what_is_expected(spec: str) -> None:
    with pytest.raises(TargetError) as caught:
        resolve(spec)
    assert str(caught.value) == (
        f"target {spec!r} is not understood; expected installed, pypi:VERSION, path:DIR or git:DIR@REV"
    )


@pytest.mark.parametrize("version", ["latest", "0.5.16; rm -rf /", "--help"])
def test_bad_version_is_refused(version: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="is no version; expected something like 0.5.16"):
        resolve(f"pypi:{version}", tmp_path)


def test_every_error_is_one_line(tmp_path: Path, index: Path, checkout: Path) -> None:
    specs = ["nonsense", "pypi:x", "pypi:1.2.3", f"path:{tmp_path}", f"git:{checkout}@nope", f"git:{tmp_path}/x@v1"]
    messages = []
    for spec in specs:
        with pytest.raises(TargetError) as caught:
            resolve(spec, tmp_path / "cache")
        messages.append(str(caught.value))
    assert [message.count("\n") for message in messages] == [0] * 6


def test_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMRIPPER_CACHE", "/somewhere/else")
    assert targets.default_cache() == Path("/somewhere/else")


# Paths


def test_path_is_the_folder_that_holds_sglang(checkout: Path) -> None:
    git(checkout, "checkout", "-q", "v1")
    assert resolve(f"path:{checkout}/python").folder == checkout / "python"


def test_path_key_changes_with_an_edit(checkout: Path) -> None:
    git(checkout, "checkout", "-q", "v1")
    spec = f"path:{checkout}/python"
    before = resolve(spec).key
    (checkout / "python" / "sglang" / "__init__.py").write_text("one = 1.5\n")
    assert resolve(spec).key != before


def test_path_one_folder_off_gets_a_hint(checkout: Path) -> None:
    git(checkout, "checkout", "-q", "v1")
    with pytest.raises(TargetError, match=f"did you mean path:{checkout}/python"):
        resolve(f"path:{checkout}")


def test_path_to_no_folder(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="/nowhere is no folder"):
        resolve(f"path:{tmp_path}/nowhere")


# Releases


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


RESOLVE = """
import sys, json
from pathlib import Path
from fuzz.targets import resolve
target = resolve(sys.argv[1], Path(sys.argv[2]))
print(json.dumps([str(target.folder), "sglang" in sys.modules, "torch" in sys.modules]))
"""


def resolve_elsewhere(spec: str, cache: Path) -> tuple[str, bool, bool]:
    command = [sys.executable, "-c", RESOLVE, spec, str(cache)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(targets.__file__).parents[1])
    folder, sglang, torch = json.loads(done.stdout)
    return folder, sglang, torch


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


# Revisions


def test_revision_is_laid_out_and_removed(tmp_path: Path, checkout: Path) -> None:
    with open_target(f"git:{checkout}@v1", tmp_path / "cache") as target:
        assert target.folder is not None
        assert (target.folder.name, (target.folder / "sglang" / "__init__.py").read_text()) == ("python", "one = 1\n")
        assert worktree_count(checkout) == 1
    assert worktree_count(checkout) == 0
    assert not target.folder.exists()


def test_revision_with_sglang_at_the_root(tmp_path: Path, checkout: Path) -> None:
    with open_target(f"git:{checkout}@v2", tmp_path / "cache") as target:
        assert target.folder is not None
        assert (target.folder / "sglang" / "__init__.py").is_file()


def test_label_and_key_are_the_commit(tmp_path: Path, checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "v1")
    with open_target(f"git:{checkout}@v1", tmp_path / "cache") as target:
        assert (target.label, target.key) == (f"git-{commit[:12]}", f"git-{commit}")


def test_revision_before_now(tmp_path: Path, checkout: Path) -> None:
    with open_target(f"git:{checkout}@HEAD@{{1}}", tmp_path / "cache") as target:
        assert target.key == f"git-{git(checkout, 'rev-parse', 'v2')}"


def test_revision_without_sglang(tmp_path: Path, checkout: Path) -> None:
    with pytest.raises(TargetError, match="has neither python/sglang/ nor sglang/"):
        resolve(f"git:{checkout}@v3", tmp_path / "cache")
    assert worktree_count(checkout) == 0


def test_unknown_revision(tmp_path: Path, checkout: Path) -> None:
    with pytest.raises(TargetError, match="no revision 'nope' there; fetch it first"):
        resolve(f"git:{checkout}@nope", tmp_path / "cache")


def test_revision_missing(checkout: Path) -> None:
    with pytest.raises(TargetError, match="names no revision; expected git:DIR@REV"):
        resolve(f"git:{checkout}")


def test_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="is no git checkout"):
        resolve(f"git:{tmp_path}@v1", tmp_path / "cache")


def test_two_users_share_one_worktree_until_the_last_leaves(tmp_path: Path, checkout: Path) -> None:
    first, second = (resolve(f"git:{checkout}@v1", tmp_path / "cache") for _ in range(2))
    assert (first.folder, worktree_count(checkout)) == (second.folder, 1)
    first.cleanup()
    assert worktree_count(checkout) == 1
    second.cleanup()
    second.cleanup()
    assert worktree_count(checkout) == 0


def test_worktree_of_a_dead_process_is_pruned(tmp_path: Path, checkout: Path) -> None:
    resolve_elsewhere(f"git:{checkout}@v1", tmp_path / "cache")
    assert worktree_count(checkout) == 1
    with open_target(f"git:{checkout}@v2", tmp_path / "cache"):
        assert worktree_count(checkout) == 1
    assert worktree_count(checkout) == 0


def test_interrupted_check_out_starts_again(tmp_path: Path, checkout: Path) -> None:
    with open_target(f"git:{checkout}@v1", tmp_path / "cache") as target:
        assert target.folder is not None
        tree = target.folder.parent
    tree.mkdir()
    (tree / "half").touch()
    with open_target(f"git:{checkout}@v1", tmp_path / "cache") as target:
        assert sorted(os.listdir(tree)) == [".git", "python"]


def test_hooks_of_the_checkout_do_not_run(tmp_path: Path, checkout: Path) -> None:
    hook = checkout / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    with open_target(f"git:{checkout}@v1", tmp_path / "cache"):
        assert not (tmp_path / "ran").exists()
