"""The same programs on two targets of a few lines: what is new, gone and unchanged, whatever the targets do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz.contrast import ContrastOptions, ContrastResult
from fuzz.lockstep import contrast
from fuzz.order import CampaignError, CampaignOptions, CampaignResult
from fuzz.process import Ready
from fuzz.program import Idle, Program, parse
from fuzz.record import Record
from fuzz.repro import read_repro
from fuzz.targets import TargetError
from stubs.world import World
from tests.fuzz.campaign_log import campaign
from tests.fuzz.conftest import CLEAN, MakeTarget

ON_DECODE = """
class Gap(Exception): pass
class Refusal(Exception): pass

class Backend:
    ran = 0
    def forward_decode(self, seed):
        Backend.ran += 1
        {statement}

def step(kind, seed):
    if kind == "decode":
        Backend().forward_decode(seed)
"""
SIGNATURE = "contract/KeyError/Backend.forward_decode"


def on_decode(statement: str) -> str:
    return ON_DECODE.format(statement=statement)


BUG = on_decode("raise KeyError('x')")


class Silent:
    """A Progress that keeps the records and the phases."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.phases: list[str] = []
        self.notes: list[str] = []
        self.pairs: tuple[str, ...] = ()

    def started(self, options: CampaignOptions, ready: Ready, pairs: tuple[str, ...]) -> None:
        self.pairs = pairs

    def program_done(self, record: Record) -> None:
        self.records.append(record)

    def finding(self, finding: dict[str, Any]) -> None:
        raise AssertionError("findings are told at the end")

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, result: CampaignResult) -> None:
        raise AssertionError("a contrast has a result of its own")


Options = Callable[..., ContrastOptions]


@pytest.fixture
def options(tmp_path: Path, make_target: MakeTarget) -> Options:
    """``options(before, after, **fields)``: twelve programs on targets with these sources."""

    def make(before: str = CLEAN, after: str = CLEAN, **fields: Any) -> ContrastOptions:
        target = make_target(after, name="after", version="9.2")
        return ContrastOptions(f"path:{make_target(before, name='before')}", campaign(tmp_path, target, **fields))

    return make


def states(result: ContrastResult) -> dict[str, str]:
    return {one.signature: one.state for one in result.differences}


def test_two_alike_have_nothing_new(options: Options) -> None:
    result = contrast(options(), Silent())
    assert (result.exit_code, result.programs, result.differences) == (0, 12, ())
    assert result.versions == ("9.1", "9.2")
    assert result.verdicts == ({"ok": 12}, {"ok": 12})


def test_what_only_the_target_shows_is_new(options: Options) -> None:
    result = contrast(options(CLEAN, BUG), Silent())
    (one,) = result.differences
    assert (one.signature, one.state, result.exit_code) == (SIGNATURE, "new", 1)
    assert (str(one.duel.before), str(one.duel.after)) == ("0/5", "5/5")
    assert one.programs[0] == 0
    assert one.programs[1] > 1


def test_what_one_shows_alone_is_told_at_once(options: Options) -> None:
    contrast(options(CLEAN, BUG), log := Silent())
    assert log.notes == [f"{SIGNATURE} shows on the target alone, so far (decode)"]


def test_what_is_new_is_shrunk_and_saved(options: Options, tmp_path: Path) -> None:
    given = options(CLEAN, BUG)
    (one,) = contrast(given, Silent()).differences
    script = tmp_path / "repros" / "contract-KeyError-Backend_forward_decode-d006b7aa.py"
    assert one.script == str(script)
    saved = read_repro(script)
    assert (str(saved.signature), saved.found_on, saved.program.text) == (SIGNATURE, given.campaign.target, one.program)
    assert [op.kind for op in saved.program.ops] == ["extend", "decode"]
    assert f"Found by: seamripper contrast --baseline {given.baseline} --target {given.campaign.target} --seed 0\n" in (
        script.read_text()
    )


@pytest.mark.parametrize("text", [f"PROGRAM = {Program(World(), (Idle(),)).text!r}\n", "half a scr"])
def test_a_script_of_the_same_fault_is_left_alone(options: Options, tmp_path: Path, text: str) -> None:
    earlier = tmp_path / "repros" / "contract-KeyError-Backend_forward_decode-d006b7aa.py"
    earlier.parent.mkdir()
    earlier.write_text(text)
    (one,) = contrast(options(CLEAN, BUG), Silent()).differences
    assert earlier.read_text() == text
    assert Path(one.script).name.startswith("contract-KeyError-Backend_forward_decode-d006b7aa-")
    assert read_repro(Path(one.script)).program.text == one.program


def test_what_the_target_shows_no_more_is_gone(options: Options, tmp_path: Path) -> None:
    result = contrast(options(BUG, CLEAN), Silent())
    assert (states(result), result.exit_code) == ({SIGNATURE: "gone"}, 0)
    assert not (tmp_path / "repros").exists()


def test_what_both_show_is_unchanged_and_not_run_again(options: Options) -> None:
    result = contrast(options(BUG, BUG), Silent())
    (one,) = result.differences
    assert (one.state, one.duel.after.runs, result.exit_code) == ("unchanged", 0, 0)
    assert one.programs[0] == one.programs[1] > 1


def test_a_known_fault_in_a_program_that_was_clean_is_new(options: Options) -> None:
    result = contrast(options(on_decode("if seed % 3 == 0: raise KeyError('x')"), BUG), Silent())
    (one,) = result.differences
    assert (one.state, result.exit_code) == ("new", 1)
    assert 0 < one.programs[0] < one.programs[1]
    assert one.duel.detail == f"the baseline shows it too, in {one.programs[0]} other program(s)"


def test_chance_is_not_taken_for_a_change(options: Options) -> None:
    # Both show it in every third decode of a process, from another one on.
    rare = "if (Backend.ran + {}) % 3 == 0: raise KeyError('x')"
    result = contrast(options(on_decode(rare.format(0)), on_decode(rare.format(1)), programs=30), Silent())
    assert (states(result), result.exit_code) == ({SIGNATURE: "unchanged"}, 0)


def test_a_gap_of_ours_on_the_baseline_leaves_it_open(options: Options) -> None:
    result = contrast(options(on_decode("raise Gap('field')"), BUG), Silent())
    (one,) = result.differences
    assert (one.state, result.exit_code) == ("uncertain", 0)
    assert one.duel.detail == "the baseline does not get that far: stub_gap: Gap at Backend.forward_decode"


def test_another_fault_in_its_place_leaves_both_open(options: Options) -> None:
    result = contrast(options(on_decode("raise TypeError('x')"), BUG), Silent())
    assert states(result) == {"contract/TypeError/Backend.forward_decode": "uncertain", SIGNATURE: "uncertain"}
    assert result.exit_code == 0


def test_killed_workers_are_started_again(options: Options) -> None:
    killed = on_decode("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    result = contrast(options(CLEAN, killed), Silent())
    (one,) = result.differences
    assert one.signature.startswith("contract/SIGSEGV/")
    assert (one.state, result.programs) == ("new", 12)


def test_a_hang_is_new_in_good_time(options: Options) -> None:
    slow = on_decode("import time; time.sleep(60)")
    started = time.monotonic()
    result = contrast(options(CLEAN, slow, programs=2, program_seconds=0.5, shrink=False), Silent())
    assert [(one.signature.split("/")[1], one.state) for one in result.differences] == [("hang", "new")]
    assert time.monotonic() - started < 60


def test_both_run_the_same_programs_in_order(options: Options, tmp_path: Path) -> None:
    contrast(options(seed=3), Silent())
    lines = {
        side: [
            Record.from_line(line) for line in (tmp_path / "out" / side / "records-0.jsonl").read_text().splitlines()
        ]
        for side in ("baseline", "target")
    }
    before, after = ([(record.seed, record.program) for record in lines[side]] for side in lines)
    assert before == after
    assert [seed for seed, _ in before] == list(range(3_000_009, 3_000_021))
    assert {record.sglang_version for record in lines["target"]} == {"9.2"}


def test_several_workers_share_the_programs(options: Options) -> None:
    log = Silent()
    result = contrast(options(CLEAN, BUG, workers=2), log)
    assert (result.programs, states(result)) == (12, {SIGNATURE: "new"})
    assert {record.worker for record in log.records} == {0, 1}


def test_only_pairs_of_both_are_run(options: Options) -> None:
    before = "PAIRS = {'triton:torch_native': '', 'triton:fa3': ''}\n" + CLEAN
    after = "PAIRS = {'triton:torch_native': '', 'triton:new': ''}\n" + CLEAN
    result = contrast(options(before, after), Silent())
    assert result.pairs == ("triton:torch_native",)
    assert result.pairs_apart == {"triton:fa3": "runs on the baseline alone", "triton:new": "runs on the target alone"}


def test_modes_of_verifying_that_one_lacks_are_left_out(options: Options) -> None:
    before = "MODES = {'decode': 2}\n" + CLEAN
    result = contrast(options(before, on_decode("pass"), programs=40), log := Silent())
    assert result.exit_code == 0
    modes = {mode for record in log.records for mode, _, _ in record.steps}
    assert "verify" in modes


def test_a_pair_that_one_lacks_is_named(options: Options) -> None:
    result = contrast(options(pairs=("triton:fa3",)), Silent())
    assert result.exit_code == 3
    assert result.reason == "no pair of backends can run on both targets here; `seamripper doctor` says why"
    assert result.pairs_apart == {"triton:fa3": "pair 'triton:fa3' cannot run on this target here: no fa3 here"}


def test_a_target_that_does_not_import_could_not_run(options: Options) -> None:
    result = contrast(options(CLEAN, "raise ImportError('no cutlass')"), Silent())
    assert result.exit_code == 3
    assert "ImportError: no cutlass" in result.reason


def test_the_result_is_on_disk(options: Options, tmp_path: Path) -> None:
    contrast(options(CLEAN, BUG), Silent())
    answer = json.loads((tmp_path / "out" / "contrast.json").read_text())
    assert (answer["exit_code"], answer["new"], answer["gone"], answer["programs"]) == (1, 1, 0, 12)
    assert [op.kind for op in parse(answer["differences"][0]["program"]).ops] == ["extend", "decode"]


def test_the_same_folder_again_starts_anew(options: Options, tmp_path: Path) -> None:
    given = options()
    contrast(given, Silent())
    contrast(given, Silent())
    assert len((tmp_path / "out" / "target" / "records-0.jsonl").read_text().splitlines()) == 12


def test_a_target_that_is_gone_half_way_is_no_clean_end(options: Options) -> None:
    # The first decode kills the whole worker, which then cannot import the target again.
    source = on_decode("open(flag, 'w').close(); os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)")
    flag = "import os\nflag = os.path.join(os.path.dirname(__file__), 'flag')\nif os.path.exists(flag): raise ImportError('gone')\n"
    result = contrast(options(CLEAN, flag + source), Silent())
    assert result.exit_code == 3
    assert "ImportError: gone" in result.reason


def test_interrupted_leaves_what_differs_open(options: Options) -> None:
    class Impatient(Silent):
        def program_done(self, record: Record) -> None:
            super().program_done(record)
            if record.verdict == "bug":
                raise KeyboardInterrupt

    result = contrast(options(CLEAN, BUG), Impatient())
    (one,) = result.differences
    assert (one.state, result.interrupted, result.exit_code) == ("uncertain", True, 0)


def test_twice_the_same_target_is_refused(options: Options) -> None:
    given = options()
    with pytest.raises(CampaignError, match="baseline and target are both"):
        contrast(replace(given, baseline=given.campaign.target), Silent())


def test_a_baseline_that_cannot_be_had(options: Options) -> None:
    with pytest.raises(TargetError, match="'nonsense' is not understood"):
        contrast(replace(options(), baseline="nonsense"), Silent())
