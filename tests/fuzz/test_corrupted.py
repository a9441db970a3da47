"""Programs that end in a corrupted step: how they are drawn, what their text is, what a campaign makes of their findings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.corrupted import corrupted
from fuzz.finding import Finding, Signature, Verdict
from fuzz.generate import program_for
from fuzz.ledger import check
from fuzz.limits import Limits
from fuzz.order import CampaignError, CampaignOptions
from fuzz.program import Decode, Extend, Finish, Idle, Program, ProgramError, Row, parse
from fuzz.tally import Tally
from fuzz.terms import Terms, asked
from fuzz.trace import Trace
from stubs.corruption import CORRUPTIONS, corruptions_of
from stubs.world import World
from tests.fuzz.test_store import RECORD

PROMPT = Extend((Row(0, 5),))
SILENT = Signature("corrupt", "length_zero", "TritonAttnBackend.forward_decode")


def options(**given: object) -> CampaignOptions:
    fields = {"target": "pypi:0.5.23", "repros": Path("r"), "out": Path("o"), "python": "python", "programs": 1}
    return CampaignOptions(**{**fields, **given})  # type: ignore[arg-type]


def finding(signature: Signature) -> Finding:
    return Finding(Verdict.BUG, signature, "a title", "a message", 1, "decode")


def test_a_program_ends_in_the_step_that_is_corrupted() -> None:
    made = corrupted(Program(World(), (PROMPT, Decode((0,)), Finish((0,)), Idle())), seed=3)
    assert made.ops in ((PROMPT,), (PROMPT, Decode((0,))))
    assert made.corruption in corruptions_of(made.ops[-1].kind)


def test_a_program_without_a_step_stays_as_it_is() -> None:
    program = Program(World(), (Idle(),))
    assert corrupted(program, seed=3) == program


def test_corrupted_programs_are_valid_and_take_every_corruption() -> None:
    limits = Limits(pairs=("triton:fa3",), tokens_max=40)
    made = [corrupted(program_for(seed, limits), seed) for seed in range(1000)]
    for program in made:
        check(program)
    assert {program.corruption for program in made if program.ops} == set(CORRUPTIONS)
    assert {(program.world.graph, program.world.save_kv_cache) for program in made} == {(0, 1)}


def test_text_of_a_corrupted_program_comes_back() -> None:
    program = Program(World(), (PROMPT,), seed=7, corruption="length_zero")
    assert program.text.startswith('{"corruption":"length_zero","seamripper":1,"seed":7,"world":{')
    assert parse(program.text) == program


def test_a_program_without_corruption_says_nothing_of_it() -> None:
    assert "corruption" not in Program(World(), (PROMPT,)).text


@pytest.mark.parametrize("name", ['"sabotage"', '""', "3"])
def test_an_unknown_corruption_is_refused(name: str) -> None:
    text = Program(World(), (PROMPT,), corruption="length_zero").text.replace('"length_zero"', name)
    with pytest.raises(ProgramError, match="line 1: corruption is .*; expected one of length_too_long, "):
        parse(text)


def test_it_says_nothing_of_the_program_that_a_corrupted_input_was_taken() -> None:
    assert Trace((), (finding(SILENT),), 0.0, "").verdict is Verdict.OK


def test_a_corrupted_input_that_was_taken_is_looked_into_and_no_new_bug() -> None:
    tally = Tally()
    assert tally.count_finding(finding(SILENT), RECORD, "text") is not None
    assert [entry["signature"] for entry in tally.unexamined] == [str(SILENT)]
    assert tally.new_bugs == []


def test_command_of_a_campaign_says_that_it_corrupts() -> None:
    assert options(corrupt=True).command == "seamripper run --target pypi:0.5.23 --seed 0 --corrupt"


@pytest.mark.parametrize("given", [{"runner": "real"}, {"engine": "exhaustive"}])
def test_inputs_are_corrupted_of_random_programs_on_the_fake_runner(given: dict[str, str]) -> None:
    with pytest.raises(CampaignError, match="expected the fake runner and engine random"):
        options(corrupt=True, **given).check()


@pytest.mark.parametrize("first", [True, False])
def test_a_folder_holds_one_kind_of_campaign(first: bool) -> None:
    terms = Terms(asked(options(corrupt=first)), ("triton:fa3",), {}, "0.5.23")
    with pytest.raises(CampaignError, match="holds a campaign with corrupt"):
        terms.check(options(corrupt=not first))


def test_terms_of_a_campaign_without_are_what_they_were() -> None:
    assert "corrupt" not in asked(options())
    assert replace(options(), corrupt=False).command == "seamripper run --target pypi:0.5.23 --seed 0"
