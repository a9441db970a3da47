"""Modules that some releases lack: what is not there is left out, what is broken is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from stubs.sglang_modules import present


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_modules_that_are_not_there_are_left_out(release: Path) -> None:
    write(release / "sglang_whole" / "__init__.py", "")
    write(release / "sglang_whole" / "one.py", "ANSWER = 1")
    found = present("sglang_whole.one", "sglang_whole.two", "sglang_none.one")
    assert [(module.__name__, module.ANSWER) for module in found] == [("sglang_whole.one", 1)]


@pytest.mark.parametrize("place", ["__init__", "one"])
def test_a_module_that_lacks_what_it_needs_is_not_taken_for_one_that_is_not_there(release: Path, place: str) -> None:
    write(release / f"sglang_broken_{place}" / "__init__.py", "")
    write(release / f"sglang_broken_{place}" / "one.py", "")
    write(release / f"sglang_broken_{place}" / f"{place}.py", "import nowhere_to_be_found")
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        list(present(f"sglang_broken_{place}.one"))
