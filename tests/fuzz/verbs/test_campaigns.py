"""`seamripper run`: what it hands on, prints, writes and exits with; the campaign itself is replaced."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.__main__ import main
from fuzz.campaign import CampaignOptions, CampaignResult, Progress, run_campaign
from fuzz.verbs import campaigns
from tests.fuzz.conftest import FAKE_EXECUTOR, MakeTarget
from tests.fuzz.mistake import mistake
from tests.reports.sample import FINDING

RESULT = CampaignResult(
    findings=[{**FINDING, "known": False}],
    programs=12,
    steps=34,
    exit_code=1,
    out=Path("out"),
    scripts=(Path("repros/a b.py"),),
    interrupted=False,
    reason="",
)


class Campaign:
    """Stands in for run_campaign; remembers its options."""

    def __init__(self, result: CampaignResult) -> None:
        self.result = result
        self.options: CampaignOptions | None = None

    def __call__(self, options: CampaignOptions, progress: Progress) -> CampaignResult:
        self.options = options
        options.out.mkdir(parents=True)
        return replace(self.result, out=options.out)


@pytest.fixture
def campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Campaign:
    made = Campaign(RESULT)
    monkeypatch.setattr(campaigns, "run_campaign", made)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def real_campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The campaign itself, on a target without SGLang."""

    def with_fake_executor(options: CampaignOptions, progress: Progress) -> CampaignResult:
        return run_campaign(replace(options, executor=FAKE_EXECUTOR), progress)

    monkeypatch.setattr(campaigns, "run_campaign", with_fake_executor)
    monkeypatch.chdir(tmp_path)


def test_run_hands_its_options_on(campaign: Campaign) -> None:
    line = "run --target path:/x --pair a:b c:d --runner real --programs 9 --workers 2 --seed 5 --no-shrink --twins"
    assert main([*line.split(), "--known", "k", "--repros", "r", "--out", "o"]) == 1
    assert campaign.options == CampaignOptions(
        target="path:/x",
        repros=Path("r"),
        out=Path("o"),
        python=sys.executable,
        pairs=("a:b", "c:d"),
        runner="real",
        programs=9,
        workers=2,
        seed=5,
        known=Path("k"),
        twins=True,
        shrink=False,
    )


def test_run_without_a_budget_takes_a_minute(campaign: Campaign) -> None:
    main(["run"])
    assert campaign.options is not None
    assert (campaign.options.seconds, campaign.options.programs) == (60.0, None)


def test_run_with_programs_alone_has_no_time_limit(campaign: Campaign) -> None:
    main(["run", "--programs", "3"])
    assert campaign.options is not None
    assert campaign.options.seconds is None


@pytest.mark.parametrize("status", [0, 1, 3])
def test_run_exits_as_the_campaign_says(campaign: Campaign, status: int) -> None:
    campaign.result = replace(RESULT, exit_code=status)
    assert main(["run"]) == status


def test_run_says_what_is_new_and_how_to_replay(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "--target", "pypi:0.5.16", "--out", "o"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 new finding in 12 programs, 34 steps"
    assert lines[2].split()[:3] == ["new", "Wrapper", "lacks"]
    assert lines[-2:] == ["replay: seamripper replay 'repros/a b.py' --target pypi:0.5.16", "report: o/report.html"]


def test_run_says_that_it_was_interrupted(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    campaign.result = replace(RESULT, findings=[], scripts=(), exit_code=0, interrupted=True)
    assert main(["run"]) == 0
    assert capsys.readouterr().out.startswith("nothing new in 12 programs, 34 steps (interrupted)\n")


def test_run_says_why_it_could_not(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    campaign.result = replace(RESULT, findings=[], scripts=(), programs=0, steps=0, exit_code=3, reason="no pair")
    assert main(["run"]) == 3
    assert capsys.readouterr().out.startswith("could not run: no pair\n")


def test_run_json_is_all_that_stdout_holds(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--json", "--out", "o"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["exit_code"], answer["new"], answer["programs"], answer["scripts"]) == (1, 1, 12, ["repros/a b.py"])
    assert answer["reports"][-1] == "o/junit.xml"


def test_run_writes_the_command_down(campaign: Campaign) -> None:
    main(["run", "--target", "pypi:0.5.16", "--out", "o"])
    assert json.loads(Path("o/run.json").read_text())["command"] == "seamripper run --target pypi:0.5.16 --out o"


def test_run_without_pandas_keeps_its_findings(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "reports", None)
    assert main(["run", "--out", "o"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "report: o"
    assert "pip install 'seamripper[report]', then `seamripper report o`" in err


@pytest.mark.usefixtures("real_campaign")
def test_run_from_end_to_end(make_target: MakeTarget, capsys: pytest.CaptureFixture[str]) -> None:
    target = f"path:{make_target()}"
    assert main(["run", "--target", target, "--programs", "20", "--out", "o"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("nothing new in 20 programs, ")
    assert "SGLang 9.1, fake runner, triton:torch_native" in err
    assert Path("o/summary.md").read_text().startswith("# Nothing new: ")


def test_a_twin_is_refused_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert "triton:triton" in mistake(capsys, "run", "--pair", "triton:triton")


def test_run_that_comes_after_another_names_it(campaign: Campaign) -> None:
    Path("nights/1").mkdir(parents=True)
    Path("nights/1/findings.jsonl").touch()
    main(["run", "--since", "nights/1", "--out", "o"])
    assert campaign.options is not None
    assert campaign.options.since == Path("nights/1")
    assert json.loads(Path("o/run.json").read_text())["since"] == "nights/1"


def test_first_run_of_a_folder_of_runs_has_none_before_it(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["run", "--target", "path:/x", "--since", "nights", "--out", "nights/1"])
    assert campaign.options is not None
    assert campaign.options.since is None
    assert "seamripper: --since: nights holds no earlier run on path:/x\n" in capsys.readouterr().err
    assert "since" not in json.loads(Path("nights/1/run.json").read_text())


def test_run_after_a_folder_that_is_missing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    said = mistake(capsys, "run", "--since", "absent")
    assert "--since: absent is no folder; expected an earlier run's --out folder, or one that holds such" in said


@pytest.mark.usefixtures("real_campaign")
def test_two_nights_from_end_to_end(make_target: MakeTarget, capsys: pytest.CaptureFixture[str]) -> None:
    source = "def step(kind, seed):\n    if kind == 'decode': raise KeyError('x')\n"
    target = f"path:{make_target(source)}"
    line = ["run", "--target", target, "--programs", "10", "--since", "nights", "--repros", "r", "--out"]
    assert main([*line, "nights/1"]) == 1
    package = Path(target.removeprefix("path:")) / "sglang" / "__init__.py"
    package.write_text(package.read_text().replace("if kind == 'decode'", "if kind == 'never'"))
    capsys.readouterr()
    assert main([*line, "nights/2"]) == 0
    assert "fixed since the earlier run (clean in 3 runs of its program): contract/KeyError/" in capsys.readouterr().out
    summary = Path("nights/2/summary.md").read_text().splitlines()
    assert summary[4] == "**0** new · **0** known · **1** fixed since"
