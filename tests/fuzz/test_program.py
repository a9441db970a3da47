"""Program: one canonical text, parsed strictly, and a total order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.ledger import check
from fuzz.program import Decode, Extend, Finish, Idle, Mixed, Program, ProgramError, Retract, Row, Verify, parse
from stubs.world import World
from tests.fuzz.golden import DATA

HEADER = Program(World(), ()).text.strip()
EXPECTED = "expected an object a line, or a script"

GOLDEN = {
    "chunked": ("0290cee852dc068f", ("extend", "extend", "extend", "decode")),
    "extend_decode": ("fdf3f693876ad6ee", ("extend", "decode", "decode")),
    "idle": ("6382c38e926408fa", ("idle", "extend", "idle")),
    "mixed": ("ba30be8ab571f6b4", ("extend", "mixed", "mixed")),
    "prefix_hit": ("4ae077a8e25a6960", ("extend", "extend", "finish", "extend")),
    "retract": ("a182191b79b3c279", ("extend", "decode", "retract", "extend", "decode")),
    "verify_chain": ("23ad4ac39d8c70c5", ("extend", "verify", "verify")),
    "verify_tree": ("d49b4340fa52a782", ("extend", "verify", "finish")),
}


def test_every_golden_program_is_listed() -> None:
    assert sorted(path.stem for path in DATA.glob("*.jsonl")) == sorted(GOLDEN)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_program_comes_back_as_it_was_written(name: str) -> None:
    text = (DATA / f"{name}.jsonl").read_text()
    assert parse(text).text == text


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_program_has_its_hash_and_kinds(name: str) -> None:
    program = parse((DATA / f"{name}.jsonl").read_text())
    assert (program.hash, tuple(op.kind for op in program.ops)) == GOLDEN[name]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_program_is_one_a_scheduler_could_run(name: str) -> None:
    check(parse((DATA / f"{name}.jsonl").read_text()))


OPS = [
    (Extend((Row(0, 5),)), '{"op":"extend","rows":[{"request":0,"tokens":5}]}'),
    (
        Extend((Row(1, 3, cached_from=0, cached=8, more=1),)),
        '{"op":"extend","rows":[{"cached":8,"cached_from":0,"more":1,"request":1,"tokens":3}]}',
    ),
    (Mixed((Row(1, 2),), (0,)), '{"op":"mixed","requests":[0],"rows":[{"request":1,"tokens":2}]}'),
    (Extend((Row(1, 3, encoder=2),)), '{"op":"extend","rows":[{"encoder":2,"request":1,"tokens":3}]}'),
    (Decode((0, 2)), '{"op":"decode","requests":[0,2]}'),
    (Verify((0,), (2,)), '{"accepts":[2],"draft_extend":1,"op":"verify","requests":[0]}'),
    (
        Verify((0, 1), (1, 2), 0, verify_lens=(1, 3)),
        '{"accepts":[1,2],"draft_extend":0,"op":"verify","requests":[0,1],"verify_lens":[1,3]}',
    ),
    (Idle(), '{"op":"idle"}'),
    (Finish((0,), keep=1), '{"keep":1,"op":"finish","requests":[0]}'),
    (Retract((3,)), '{"op":"retract","requests":[3]}'),
]


@pytest.mark.parametrize(("op", "line"), OPS)
def test_text_of_an_op(op: Extend, line: str) -> None:
    assert Program(World(), (op,)).text.splitlines()[1] == line


@pytest.mark.parametrize(("op", "line"), OPS)
def test_op_of_a_text(op: Extend, line: str) -> None:
    assert parse(f"{HEADER}\n{line}\n").ops == (op,)


def test_order_of_keys_and_blank_lines_do_not_matter() -> None:
    program = parse(f'\n{HEADER}\n\n  {{"requests": [0], "op": "decode"}}\n')
    assert program == Program(World(), (Decode((0,)),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "program text is empty; expected a JSON header line"),
        (
            "{",
            f"line 1: not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); {EXPECTED}",
        ),
        ("[]", 'line 1: expected a header with "seamripper": 1'),
        ('{"seamripper":2}', 'line 1: expected a header with "seamripper": 1'),
        (
            '{"seamripper":1}',
            "line 1: header has ['seamripper']; expected seamripper, seed, world and maybe corruption",
        ),
        ('{"seamripper":1,"seed":0,"world":[]}', "line 1: world is list; expected an object"),
        ('{"seamripper":1,"seed":-1,"world":{}}', "line 1: seed is -1; expected an integer from 0 to 2**31-1"),
        ('{"seamripper":1,"seed":0.5,"world":{}}', "line 1: seed is 0.5; expected an integer from 0 to 2**31-1"),
        ("x" * ((1 << 20) + 1), "program text has 1048577 characters; the limit is 1048576"),
        ("{}\n" * 514, "program has 513 ops; the limit is 512"),
    ],
)
def test_what_is_refused_of_a_text(text: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", f"line 2: not JSON (Expecting value: line 1 column 1 (char 0)); {EXPECTED}"),
        ("7", "line 2: got int; expected an object with 'op'"),
        (
            '{"op":"prefill"}',
            "line 2: op is 'prefill'; expected one of decode, extend, finish, idle, mixed, retract, verify",
        ),
        (
            '{"op":["idle"]}',
            "line 2: op is ['idle']; expected one of decode, extend, finish, idle, mixed, retract, verify",
        ),
        ('{"op":"idle","keep":1}', "line 2: idle has the unknown field 'keep'"),
        ('{"op":"decode","requests":0}', "line 2: requests is 0; expected a list"),
        ('{"op":"decode","requests":[true]}', "line 2: requests is True; expected an integer from 0 to 2**31-1"),
        (
            '{"op":"decode","requests":[2147483648]}',
            "line 2: requests is 2147483648; expected an integer from 0 to 2**31-1",
        ),
        ('{"op":"extend","rows":{}}', "line 2: rows is {}; expected a list"),
        (
            '{"op":"extend","rows":[3]}',
            "line 2: row is 3; expected an object with request, tokens, cached_from, cached, more, encoder",
        ),
        (
            '{"op":"extend","rows":[{"length":3}]}',
            "line 2: row is {'length': 3}; expected an object with request, tokens, cached_from, cached, more, encoder",
        ),
        (
            '{"op":"extend","rows":[{"request":0,"tokens":null}]}',
            "line 2: tokens is None; expected an integer from 0 to 2**31-1",
        ),
    ],
)
def test_what_is_refused_of_an_op(line: str, message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(f"{HEADER}\n{line}\n")
    assert str(caught.value) == message


def test_deep_nesting_is_refused_and_not_a_crash() -> None:
    with pytest.raises(ProgramError, match=r"^line 2: not JSON \(maximum recursion depth exceeded"):
        parse(f"{HEADER}\n{'[' * 100_000}\n")


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ('{"op":"decode"}', "requests"),
        ('{"op":"extend"}', "rows"),
        ('{"op":"verify","requests":[0]}', "accepts"),
        ('{"op":"extend","rows":[{"request":0}]}', "tokens"),
    ],
)
def test_a_missing_field_is_named(line: str, field: str) -> None:
    with pytest.raises(ProgramError, match=f"line 2: .* lacks a field .*'{field}'"):
        parse(f"{HEADER}\n{line}\n")


PLAIN = Program(World(), (Extend((Row(0, 2),)), Decode((0,))))


@pytest.mark.parametrize(
    "simpler",
    [
        PLAIN.with_ops((Extend((Row(0, 9),)),)),  # fewer ops, whatever else
        PLAIN.with_ops((Extend((Row(0, 1),)), Decode((0,)))),  # fewer tokens
        PLAIN.with_ops((Extend((Row(0, 2),)), Idle())),  # fewer rows
    ],
)
def test_cost_puts_the_simpler_program_first(simpler: Program) -> None:
    assert simpler.cost < PLAIN.cost


@pytest.mark.parametrize(
    "richer",
    [
        replace(PLAIN, world=World(page_size=4)),
        replace(PLAIN, world=World(dtype="bfloat16")),
        replace(PLAIN, seed=1),
        PLAIN.with_ops((Extend((Row(0, 2, more=1),)), Decode((0,)))),
        PLAIN.with_ops((Extend((Row(0, 2, encoder=1),)), Decode((0,)))),
        PLAIN.with_ops((Extend((Row(0, 1, cached_from=1, cached=1),)), Decode((0,)))),
    ],
)
def test_cost_puts_the_richer_program_last(richer: Program) -> None:
    assert PLAIN.cost < richer.cost


def test_equal_programs_are_one_in_a_set() -> None:
    assert len({PLAIN, Program(World(), (Extend((Row(0, 2),)), Decode((0,))))}) == 1
