"""What the command line says of a user's mistake."""

from __future__ import annotations

import pytest

from fuzz.__main__ import main


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a verb that must exit 2."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("seamripper: ")
    return err.removeprefix("seamripper: ").rstrip("\n")
