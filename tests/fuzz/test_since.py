"""What an earlier run found: read from its folder, run again where this run did not meet it, and told how it stands."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import CampaignOptions, run_campaign
from fuzz.confirm import Patience
from fuzz.finding import Finding, Signature, Verdict
from fuzz.merge import merge
from fuzz.program import Decode, Extend, Program, Row
from fuzz.sealed import sealed, unsealed
from fuzz.since import Earlier, Sequel, earlier_run, read_earlier, read_sequels, rerun, sequels, to_rerun
from fuzz.terms import Terms
from fuzz.trace import Trace
from stubs.world import World
from tests.fuzz.campaign_log import Log, on_decode

SIGNATURE = "contract/KeyError/Backend.forward_decode"
DECODES = Program(World(), (Extend((Row(0, 3),)), Decode((0,))))
EARLIER = Earlier(SIGNATURE, "KeyError in decode", "triton:fa3", "r/a.py", 10, 10, DECODES)
ENTRY: dict[str, Any] = {
    "signature": SIGNATURE,
    "verdict": "bug",
    "title": "KeyError in decode",
    "pair": "triton:fa3",
    "script": "r/a.py",
    "reliability": [10, 10],
    "program": DECODES.text,
    "dismissed": "",
}
FOREVER = Patience(program_seconds=1.0, deadline=float("inf"))


class Scripted:
    """A Runner whose runs find what it was given, one after the other; "clean" to the end after that."""

    def __init__(self, *found: str) -> None:
        self.found, self.runs, self.renewals = list(found), 0, 0

    def renew(self) -> None:
        self.renewals += 1

    def run(self, program: Program, timeout_seconds: float) -> Trace:
        self.runs += 1
        what = self.found.pop(0) if self.found else "clean"
        if what == "clean":
            return Trace((), (), 0.0, "9.1")
        verdict, signature = (Verdict.BUG, what) if "/" in what else (Verdict(what), f"contract/{what}/f")
        finding = Finding(verdict, Signature.parse(signature), "some\ntitle", "message", 1, "decode")
        return Trace((), (finding,), 0.0, "9.1")


def write_findings(folder: Path, entries: Iterable[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "findings.jsonl").write_text("".join(sealed(entry) + "\n" for entry in entries))
    return folder


def test_findings_of_a_run_are_read(tmp_path: Path) -> None:
    assert read_earlier(write_findings(tmp_path, [ENTRY]), print) == [EARLIER]


@pytest.mark.parametrize(
    "other", [{"verdict": "stub_gap"}, {"dismissed": "rounding"}, {"signature": "corrupt/index_behind_the_pool/f"}]
)
def test_what_is_no_fault_on_a_valid_program_is_left_out(tmp_path: Path, other: dict[str, Any]) -> None:
    assert read_earlier(write_findings(tmp_path, [{**ENTRY, **other}]), print) == []


def test_spoiled_line_of_an_earlier_run_is_told_and_left_where_it_is(tmp_path: Path) -> None:
    path = write_findings(tmp_path, [ENTRY]) / "findings.jsonl"
    path.write_text(path.read_text() + '{"half\n')
    before, told = path.read_text(), list[str]()
    assert read_earlier(tmp_path, told.append) == [EARLIER]
    assert [line.startswith(f"{path} line 2: not JSON") for line in told] == [True]
    assert (path.read_text(), [file.name for file in tmp_path.iterdir()]) == (before, ["findings.jsonl"])


def test_run_without_an_earlier_one_has_nothing_to_look_after(tmp_path: Path) -> None:
    assert (read_earlier(None, print), read_earlier(tmp_path, print)) == ([], [])


@pytest.mark.parametrize(("shown", "runs", "needed"), [(10, 10, 3), (5, 10, 12), (1, 10, 585), (0, 0, 59)])
def test_the_rarer_it_showed_the_more_clean_runs_it_takes(shown: int, runs: int, needed: int) -> None:
    assert replace(EARLIER, shown=shown, runs=runs).clean_runs == needed


def test_fixed_is_clean_in_every_run_each_in_a_fresh_process() -> None:
    runner = Scripted()
    sequel = rerun(runner, EARLIER, "cpu", FOREVER)
    assert sequel == Sequel(SIGNATURE, "KeyError in decode", "triton:fa3", "r/a.py", 10, 10, "fixed", reruns=3)
    assert (runner.runs, runner.renewals) == (3, 3)


@pytest.mark.parametrize(
    ("found", "state", "reruns", "detail"),
    [
        (["clean", SIGNATURE], "shows", 2, ""),
        (["clean", "stub_gap"], "unclear", 2, "stub_gap: some title"),
        (["unsupported"], "unclear", 1, "unsupported: some title"),
        (["contract/OSError/elsewhere"], "unclear", 1, "bug: some title"),
    ],
)
def test_what_is_not_clean_is_not_fixed(found: list[str], state: str, reruns: int, detail: str) -> None:
    sequel = rerun(Scripted(*found), EARLIER, "cpu", FOREVER)
    assert sequel is not None
    assert (sequel.state, sequel.reruns, sequel.detail) == (state, reruns, detail)


@pytest.mark.parametrize(
    ("shown", "runs", "made", "detail"),
    [
        (1, 10, 20, "clean in 20 runs, which leaves it to chance: it showed in 1 of 10 runs then"),
        (0, 0, 20, "clean in 20 runs, which leaves it to chance: it showed in the one run there was then"),
        (0, 10, 0, "its program showed it in none of 10 runs then, either"),
    ],
)
def test_what_showed_rarely_then_is_not_called_fixed(shown: int, runs: int, made: int, detail: str) -> None:
    runner = Scripted()
    sequel = rerun(runner, replace(EARLIER, shown=shown, runs=runs), "cpu", FOREVER)
    assert sequel is not None
    assert (sequel.state, sequel.detail, runner.runs) == ("unclear", detail, made)


def test_program_for_another_device_tells_nothing() -> None:
    sequel = rerun(Scripted(), EARLIER, "cuda", FOREVER)
    assert sequel is not None
    assert (sequel.state, sequel.detail) == ("unclear", "its program is one for device cpu")


def test_past_the_deadline_nothing_is_run() -> None:
    runner = Scripted()
    assert rerun(runner, EARLIER, "cpu", replace(FOREVER, deadline=0.0)) is None
    assert runner.runs == 0


def test_each_is_met_or_as_its_program_said_or_not_run_again() -> None:
    gone, lost = replace(EARLIER, signature="numeric/nan/f"), replace(EARLIER, signature="numeric/nan/g")
    answer = replace(sequels([gone], {}, {})[0], state="fixed", reruns=3)
    told = sequels([EARLIER, gone, lost], {SIGNATURE: 7}, {"numeric/nan/f": answer})
    assert [(one.state, one.count, one.reruns) for one in told] == [
        ("met", 7, 0),
        ("fixed", 0, 3),
        ("not run again", 0, 0),
    ]
    assert to_rerun([EARLIER, gone, lost], {SIGNATURE: 7}, {"numeric/nan/f": answer}) == [lost]


def campaign_in(folder: Path, target: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "campaign.json").write_text(Terms({"target": target}, ("a:b",), {}, "9.1").to_line() + "\n")
    return folder


def test_an_out_folder_is_itself_whatever_its_target(tmp_path: Path) -> None:
    assert earlier_run(campaign_in(tmp_path / "a", "pypi:1"), tmp_path / "b", "pypi:2") == tmp_path / "a"


def test_of_many_the_last_on_this_target_before_this_one_counts(tmp_path: Path) -> None:
    for day, target in (("01", "pypi:1"), ("02", "pypi:1"), ("03", "pypi:2"), ("05", "pypi:1"), ("06", "pypi:1")):
        campaign_in(tmp_path / day, target)
    (tmp_path / "02b").mkdir()  # no campaign got as far as to begin
    assert earlier_run(tmp_path, tmp_path / "05", "pypi:1") == tmp_path / "02"
    assert earlier_run(tmp_path, tmp_path.parent / "out", "pypi:1") == tmp_path / "06"


def test_a_first_night_has_none(tmp_path: Path) -> None:
    assert earlier_run(tmp_path / "nights", tmp_path / "nights" / "01", "pypi:1") is None
    assert earlier_run(tmp_path, tmp_path / "01", "pypi:1") is None


def test_missing_folder_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError) as caught:
        earlier_run(tmp_path / "absent", tmp_path / "out", "pypi:1")
    assert str(caught.value) == (
        f"{tmp_path / 'absent'} is no folder; expected an earlier run's --out folder, or one that holds such"
    )


def states(chosen: CampaignOptions) -> list[tuple[str, str, int]]:
    entries = [unsealed(line) for line in (chosen.out / "since.jsonl").read_text().splitlines()]
    return [(entry["title"], entry["state"], entry["reruns"]) for entry in entries]


def test_a_campaign_runs_what_it_did_not_meet_and_says_so_once_more_when_it_goes_on(
    options: Any, tmp_path: Path
) -> None:
    source = "class Refusal(Exception): pass\n" + on_decode(
        "raise KeyError('x') if seed == 77 else Refusal('no') if seed == 88 else OSError"
    )
    still, refused = (replace(DECODES, seed=seed).text for seed in (77, 88))
    night = write_findings(
        tmp_path / "night",
        [
            {**ENTRY, "title": "still there", "program": still},
            {
                **ENTRY,
                "title": "fixed",
                "signature": "numeric/nan/f",
                "program": Program(World(), DECODES.ops[:1]).text,
            },
            {**ENTRY, "title": "refused now", "signature": "numeric/nan/g", "program": refused},
            {**ENTRY, "title": "met", "signature": "contract/OSError/Backend.forward_decode"},
        ],
    )
    chosen = options(source, since=night)
    result = run_campaign(chosen, Log())
    assert states(chosen) == [
        ("still there", "shows", 1),
        ("fixed", "fixed", 3),
        ("refused now", "unclear", 1),
        ("met", "met", 0),
    ]
    assert result.exit_code == 1  # for what it met; what still shows alone would not do it
    assert run_campaign(chosen, Log()) == result


def test_spoiled_answers_are_set_aside_and_found_again(options: Any, tmp_path: Path) -> None:
    night = write_findings(tmp_path / "night", [ENTRY])
    chosen = options(since=night, programs=4)
    result = run_campaign(chosen, Log())
    (chosen.out / "since.jsonl").write_text(json.dumps({"crc": "0", "state": "shows"}) + "\n")
    log = Log()
    assert [one["state"] for one in run_campaign(chosen, log).since] == ["fixed"]
    assert [one["state"] for one in result.since] == ["fixed"]
    assert "set aside in since.jsonl.broken" in log.notes[0]


def test_no_earlier_run_leaves_no_file(options: Any) -> None:
    chosen = options(programs=2)
    run_campaign(chosen, Log())
    assert not (chosen.out / "since.jsonl").exists()
    assert read_sequels(chosen.out, print) == {}


def test_shards_run_each_a_part_and_stand_together(options: Any, tmp_path: Path) -> None:
    night = write_findings(
        tmp_path / "night", [{**ENTRY, "signature": f"numeric/nan/f{number}"} for number in range(4)]
    )
    whole: CampaignOptions = options(since=night, programs=4)
    parts = [replace(whole, shard=number, shards=2, out=tmp_path / f"part{number}") for number in range(2)]
    for part in parts:
        run_campaign(part, Log())
    assert [entry[1] for entry in states(parts[1])] == ["not run again", "fixed", "not run again", "fixed"]
    whole.out.mkdir()
    merge(whole, [part.out for part in parts], {}, print)
    assert states(whole) == [("KeyError in decode", "fixed", 3)] * 4
