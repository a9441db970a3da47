"""Campaigns on targets of a few lines: what is found, kept and answered, whatever happens to the workers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import CampaignError, CampaignOptions, run_campaign
from fuzz.generate import program_for
from fuzz.limits import Limits
from fuzz.program import Extend, Program, Row, parse
from fuzz.repro import read_repro
from fuzz.sealed import sealed
from fuzz.targets import TargetError
from stubs.world import World
from tests.fuzz.campaign_log import Log, findings, on_decode, records
from tests.fuzz.conftest import CLEAN


def test_clean_target_gives_exit_0_and_one_record_a_program(options: Any) -> None:
    log = Log()
    result = run_campaign(options(), log)
    assert (result.exit_code, result.programs, result.findings) == (0, 12, [])
    assert [record.verdict for record in records(result.out)] == ["ok"] * 12
    assert result.steps == sum(count for record in records(result.out) for _, _, count in record.steps) > 12
    assert log.pairs == ("triton:torch_native",)
    assert log.result is result


def test_programs_come_in_the_order_of_their_seeds(options: Any) -> None:
    result = run_campaign(options(seed=2), Log())
    limits = Limits(pairs=("triton:torch_native",))
    assert [record.seed for record in records(result.out)] == list(range(2_000_006, 2_000_018))
    assert [record.program for record in records(result.out)][3] == program_for(2_000_009, limits).hash


def test_bug_is_confirmed_shrunk_and_saved(options: Any, tmp_path: Path) -> None:
    result = run_campaign(options(on_decode("raise KeyError('x')")), Log())
    (finding,) = findings(result.out)
    assert result.exit_code == 1
    assert finding["signature"] == "contract/KeyError/Backend.forward_decode"
    assert (finding["reliability"], finding["real"]) == ([10, 10], {"shown": 3, "runs": 3, "why_not": ""})
    assert [op.kind for op in parse(finding["program"]).ops] == ["extend", "decode"]
    assert finding["shrunk_ops"] == 2
    assert finding["count"] == sum(record.verdict == "bug" for record in records(result.out)) > 1
    script = tmp_path / "repros" / "contract-KeyError-Backend_forward_decode-d006b7aa.py"
    assert result.scripts == (script,)
    saved = read_repro(script)
    assert (str(saved.signature), saved.program.text) == (finding["signature"], finding["program"])
    assert script.read_text().splitlines()[0] == '"""KeyError at Backend.forward_decode'


def test_shrinking_can_be_left_out(options: Any) -> None:
    result = run_campaign(options(on_decode("raise KeyError('x')"), shrink=False), Log())
    (finding,) = result.findings
    first = next(record for record in records(result.out) if record.verdict == "bug")
    assert (finding["program_hash"], finding["shrunk_ops"]) == (first.program, first.ops)


def test_saved_repro_is_never_overwritten(options: Any, tmp_path: Path) -> None:
    script = tmp_path / "repros" / "contract-KeyError-Backend_forward_decode-d006b7aa.py"
    script.parent.mkdir()
    script.write_text("mine")
    result = run_campaign(options(on_decode("raise KeyError('x')")), Log())
    assert (result.exit_code, result.scripts, script.read_text()) == (1, (script,), "mine")


def test_known_signature_is_counted_and_not_new(options: Any, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.mkdir()
    text = Program(World(), (Extend((Row(0, 1),)),)).text
    signature = "SIGNATURE = 'contract/KeyError/Backend.forward_decode'"
    (known / "a.py").write_text(f"'Known: https://example.org/1'\nPROGRAM = {text!r}\n{signature}\n")
    result = run_campaign(options(on_decode("raise KeyError('x')"), known=known), Log())
    (finding,) = findings(result.out)
    assert (result.exit_code, result.scripts, finding["known"], finding["count"] > 1) == (0, (), True, True)
    assert finding["known_reason"] == "https://example.org/1"
    (standing,) = result.known
    assert (standing["state"], standing["count"]) == ("met", finding["count"])


def test_bug_that_never_shows_again_is_told_and_not_scripted(options: Any, tmp_path: Path) -> None:
    once = f"flag = {str(tmp_path / 'flag')!r}; seen = os.path.exists(flag); open(flag, 'w').close(); seen or {{}}['x']"
    result = run_campaign(options(on_decode(once)), Log())
    (finding,) = findings(result.out)
    assert (result.exit_code, finding["reliability"], finding["script"], finding["count"]) == (1, [0, 10], "", 1)
    assert finding["otherwise"] == "clean in 10"


def test_segfault_costs_no_record_and_is_shrunk(options: Any) -> None:
    result = run_campaign(options(on_decode("ctypes.string_at(0)")), Log())
    (finding,) = findings(result.out)
    assert (result.programs, len(records(result.out))) == (12, 12)
    assert finding["signature"] == "contract/SIGSEGV/Backend.forward_decode"
    assert (finding["reliability"], finding["shrunk_ops"]) == ([10, 10], 2)


def test_speculation_is_drawn_only_in_modes_that_the_target_verifies_in(options: Any) -> None:
    result = run_campaign(options("MODES = {}\n" + CLEAN, programs=40), Log())
    modes = {mode for record in records(result.out) for mode, _, _ in record.steps}
    assert "decode" in modes
    assert "verify" not in modes


def test_finding_that_nobody_had_looked_into_is_taken_up_again(options: Any) -> None:
    chosen: CampaignOptions = options(on_decode("raise KeyError('x')"))
    first = run_campaign(chosen, Log())
    (finding,) = findings(first.out)
    Path(finding["script"]).unlink()
    assert finding.pop("crc")
    unexamined = {**finding, "reliability": [0, 0], "script": "", "examined": False}  # as a kill meanwhile leaves it
    (first.out / "findings.jsonl").write_text(sealed(unexamined) + "\n")
    run_campaign(chosen, Log())
    (again,) = findings(first.out)
    del again["crc"]
    assert again == finding


def test_two_workers_run_each_program_once(options: Any) -> None:
    result = run_campaign(options(workers=2, programs=40), Log())
    assert sorted(record.seed for record in records(result.out)) == list(range(40))
    assert {record.worker for record in records(result.out)} <= {0, 1}


def test_seconds_end_it(options: Any) -> None:
    started = time.monotonic()
    result = run_campaign(options(programs=None, seconds=2.0), Log())
    assert result.programs > 0
    assert time.monotonic() - started < 10


def test_what_programs_leave_open_is_tried_at_the_end_and_written_down(options: Any) -> None:
    result = run_campaign(options(programs=None, seconds=3.0), Log())
    made = [record for record in records(result.out) if record.seed > 1_000_000]
    assert made and all(record.elapsed_seconds >= 2.7 for record in made)
    cells = [json.loads(line) for line in (result.out / "cells.jsonl").read_text().splitlines()]
    assert {cell["reason"] for cell in cells if cell["pair"] == "triton:fa3"} == {"no fa3 here"}
    open_modes = {cell["mode"] for cell in cells if cell["pair"] == "triton:torch_native"}
    assert "verify_tree_decode" in open_modes and "decode" not in open_modes


def test_so_many_programs_are_so_many(options: Any) -> None:
    result = run_campaign(options(programs=20, seconds=None), Log())
    assert sorted(record.seed for record in records(result.out)) == list(range(20))


def test_stub_gap_is_told_and_not_scripted(options: Any) -> None:
    source = "class Gap(Exception): pass\ndef step(kind, seed):\n    raise Gap('lacks x')\n"
    result = run_campaign(options(source), Log())
    (finding,) = findings(result.out)
    assert (finding["verdict"], finding["script"], finding["count"]) == ("stub_gap", "", 12)
    assert result.exit_code == 3
    assert "no program put the target to the test" in result.reason


def test_refusals_are_in_the_records_alone(options: Any) -> None:
    source = "class Refusal(Exception): pass\ndef step(kind, seed):\n    raise Refusal('no such page size')\n"
    result = run_campaign(options(source), Log())
    assert (result.exit_code, result.findings) == (3, [])
    assert {(record.verdict, record.reason) for record in records(result.out)} == {("unsupported", "no such page size")}


def test_target_that_does_not_import_gives_exit_3_and_why(options: Any) -> None:
    result = run_campaign(options("raise ImportError('no cutlass')"), Log())
    assert result.exit_code == 3
    assert "cannot run the target: ImportError: no cutlass" in result.reason


def test_interpreter_that_is_not_there_gives_exit_3(options: Any) -> None:
    result = run_campaign(options(python="/no/such/python"), Log())
    assert (result.exit_code, result.reason.split(":")[0]) == (3, "cannot start /no/such/python")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"programs": None}, "neither seconds nor programs given; expected at least one"),
        ({"programs": 0}, "programs is 0; expected more than 0"),
        ({"seconds": -1.0}, "seconds is -1.0; expected more than 0"),
        ({"workers": 0}, "workers is 0; expected more than 0"),
        ({"seed": -1}, "seed is -1; expected 0 or more"),
        ({"engine": "magic"}, "engine is 'magic'; expected one of random, exhaustive"),
        ({"runner": "toy"}, "runner is 'toy'; expected one of fake, real"),
        ({"pairs": ("triton",)}, "pair is 'triton'; expected PREFILL:DECODE"),
        ({"pairs": ("triton:triton",)}, "two equal names"),
        ({"pairs": ("triton:nonsense",)}, "pair 'triton:nonsense' is unknown to this target; expected one of triton:"),
        ({"pairs": ("triton:fa3",)}, "pair 'triton:fa3' cannot run on this target here: no fa3 here"),
        ({"known": Path("/no/such/folder")}, "known: /no/such/folder is no folder"),
    ],
)
def test_bad_usage_is_one_clear_line(options: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CampaignError) as caught:
        run_campaign(options(**fields), Log())
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_target_is_refused_before_anything_is_written(options: Any) -> None:
    chosen: CampaignOptions = options(target="nonsense")
    with pytest.raises(TargetError):
        run_campaign(chosen, Log())
    assert not chosen.out.exists()
