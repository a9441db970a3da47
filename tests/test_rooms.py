"""The rooms imported are this project's: PyPI has unrelated packages named fuzz, stubs and reports."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def stranger(room: str, root: Path = ROOT) -> str | None:
    """What to do about a room that is imported from somewhere else; None where it is ours."""
    found = Path(str(import_module(room).__file__)).resolve().parent
    if found == root / room:
        return None
    return f"{room} is imported from {found}, not from {root / room}: run `pip uninstall {room}`"


@pytest.mark.parametrize("room", ["fuzz", "stubs", "reports"])
def test_room_is_ours(room: str) -> None:
    assert stranger(room) is None


def test_stranger_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_room_of_others").mkdir()
    (tmp_path / "a_room_of_others" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert stranger("a_room_of_others", Path("/ours")) == (
        f"a_room_of_others is imported from {tmp_path}/a_room_of_others, not from /ours/a_room_of_others: "
        "run `pip uninstall a_room_of_others`"
    )
