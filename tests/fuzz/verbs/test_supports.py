"""The verb `support`: its tables, its JSON and its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fuzz.__main__ import main
from fuzz.support import Support
from fuzz.verbs import supports

GOOD = Support("0.5.23", {"a": {"extend": "yes"}}, {"a:b": "yes"})
LOST = Support("0.5.22", error="cannot be imported")


def answering(*answers: Support) -> Callable[..., Support]:
    left = list(answers)
    return lambda target, python, tell: left.pop(0)


def test_tables_go_to_stdout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(supports, "support", answering(GOOD))
    assert main(["support", "--targets", "pypi:0.5.23"]) == 0
    assert capsys.readouterr().out.startswith("|  | a |\n| --- | --- |\n| extend | yes |\n")


def test_a_target_that_cannot_be_tried_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supports, "support", answering(LOST, GOOD))
    assert main(["support", "--targets", "pypi:0.5.22", "pypi:0.5.23"]) == 3
    assert "0.5.22: cannot be imported\n" in capsys.readouterr().err


def test_json_has_every_release(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(supports, "support", answering(GOOD))
    main(["support", "--targets", "pypi:0.5.23", "--json"])
    assert json.loads(capsys.readouterr().out) == {
        "releases": [
            {
                "version": "0.5.23",
                "backends": {"a": {"extend": "yes"}},
                "pairs": {"a:b": "yes"},
                "reasons": {},
                "error": "",
            }
        ]
    }
