"""Targets: specs and paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import targets
from fuzz.targets import TargetError, resolve
from tests.fuzz.origins import git


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
