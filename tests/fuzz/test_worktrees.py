"""Revisions of a checkout: laid out with `git worktree`, shared, and removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fuzz.targets import TargetError, open_target, resolve
from tests.fuzz.origins import git, resolve_elsewhere


def worktree_count(checkout: Path) -> int:
    return len(git(checkout, "worktree", "list").splitlines()) - 1


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
