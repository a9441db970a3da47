"""`seamripper contrast`: what it hands on, prints, writes and exits with."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.__main__ import main
from fuzz.contrast import ContrastOptions, ContrastResult, Difference
from fuzz.duel import Duel, Side
from fuzz.lockstep import contrast
from fuzz.order import CampaignOptions, Progress
from fuzz.verbs import contrasts
from tests.fuzz.conftest import CLEAN, FAKE_EXECUTOR, MakeTarget

NEW = Difference(
    signature="contract/E/A.b",
    title="A lacks b",
    pair="triton:fa3",
    mode="decode",
    programs=(0, 4),
    duel=Duel("new", Side(0, 5), Side(5, 5)),
    program="",
    script="repros/a b.py",
)
OLD = Difference("contract/E/A.c", "A lacks c", "a:b", "extend", (2, 2), Duel("unchanged", Side(), Side()), "")
RESULT = ContrastResult(
    baseline="pypi:1",
    target="path:/x",
    versions=("1", "2"),
    differences=(NEW, OLD),
    programs=12,
    steps=(50, 60),
    verdicts=({"ok": 10, "bug": 2}, {"ok": 6, "bug": 6}),
    pairs=("triton:fa3",),
    pairs_apart={},
    out=Path("o"),
    command="seamripper contrast ...",
)
ARGUMENTS = ["contrast", "--baseline", "pypi:1", "--target", "path:/x", "--out", "o"]


class Stand:
    """Stands in for the contrast itself; remembers its options."""

    def __init__(self) -> None:
        self.result = RESULT
        self.options: ContrastOptions | None = None

    def __call__(self, options: ContrastOptions, progress: Progress) -> ContrastResult:
        self.options = options
        return self.result


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stand:
    made = Stand()
    monkeypatch.setattr(contrasts, "run_contrast", made)
    monkeypatch.chdir(tmp_path)
    return made


def test_options_are_handed_on(stand: Stand) -> None:
    line = "--pair a:b c:d --runner real --programs 9 --workers 2 --seed 5 --no-shrink --twins --repros r"
    assert main([*ARGUMENTS, *line.split()]) == 1
    campaign = CampaignOptions(
        target="path:/x",
        repros=Path("r"),
        out=Path("o"),
        python=sys.executable,
        pairs=("a:b", "c:d"),
        runner="real",
        programs=9,
        workers=2,
        seed=5,
        twins=True,
        shrink=False,
    )
    assert stand.options == ContrastOptions("pypi:1", campaign)


def test_without_a_budget_it_takes_a_minute(stand: Stand) -> None:
    main(ARGUMENTS)
    assert stand.options is not None
    assert (stand.options.campaign.seconds, stand.options.campaign.programs) == (60.0, None)


def test_scripts_go_with_the_reports_unless_told_otherwise(stand: Stand) -> None:
    main(ARGUMENTS)
    assert stand.options is not None
    assert stand.options.campaign.repros == Path("o/repros")


def test_a_baseline_must_be_named(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contrast", "--target", "path:/x"]) == 2
    assert "Missing option '--baseline'" in capsys.readouterr().err


def test_it_says_what_is_new_and_how_to_see_it(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ARGUMENTS) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 new, 0 uncertain, 0 gone, 1 unchanged in 12 programs on pypi:1 and path:/x"
    assert lines[2].split() == ["new", "contract/E/A.b", "triton:fa3", "decode", "0", "→", "4", "0/5", "→", "5/5"]
    assert lines[3].split() == ["unchanged", "contract/E/A.c", "a:b", "extend", "2", "→", "2", "–"]
    assert lines[4:] == [
        "replay: seamripper compare 'repros/a b.py' --targets pypi:1 path:/x",
        "report: o/contrast.html",
    ]


@pytest.mark.parametrize(
    ("result", "status", "line"),
    [
        (replace(RESULT, differences=(OLD,)), 0, "0 new, 0 uncertain, 0 gone, 1 unchanged in 12 programs"),
        (replace(RESULT, differences=(), verdicts=({}, {}), reason="no pair"), 3, "could not run: no pair"),
        (replace(RESULT, interrupted=True), 1, "1 new, 0 uncertain, 0 gone, 1 unchanged in 12 programs"),
    ],
)
def test_exit_status(
    stand: Stand, capsys: pytest.CaptureFixture[str], result: ContrastResult, status: int, line: str
) -> None:
    stand.result = result
    assert main(ARGUMENTS) == status
    assert capsys.readouterr().out.startswith(line)


def test_json_is_all_that_stdout_holds(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["exit_code"], answer["new"], answer["unchanged"]) == (1, 1, 1)
    assert answer["differences"][0]["target"] == {"shown": 5, "runs": 5, "blocked": 0, "reason": ""}
    assert answer["reports"] == ["o/contrast.md", "o/contrast.csv", "o/contrast.html"]


def test_without_pandas_the_result_stands_in_the_folder(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "reports", None)
    assert main(ARGUMENTS) == 1
    assert "what was found stands in o/contrast.json" in capsys.readouterr().err


def test_from_end_to_end(
    make_target: MakeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def with_fake_executor(options: ContrastOptions, progress: Progress) -> ContrastResult:
        return contrast(replace(options, campaign=replace(options.campaign, executor=FAKE_EXECUTOR)), progress)

    monkeypatch.setattr(contrasts, "run_contrast", with_fake_executor)
    monkeypatch.chdir(tmp_path)
    baseline = f"path:{make_target(CLEAN, name='before')}"
    target = f"path:{make_target('def step(kind, seed): {}[kind]', name='after', version='9.2')}"
    assert main(["contrast", "--baseline", baseline, "--target", target, "--programs", "9", "--out", "o"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"1 new, 0 uncertain, 0 gone, 0 unchanged in 9 programs on {baseline} and {target}\n")
    assert "SGLang 9.2, fake runner, triton:torch_native" in err
    assert Path("o/contrast.md").read_text().startswith("**1 new fault**: ")
