"""Generated programs: valid, deterministic, varied, bounded."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.choice import Bytes, exhaustive
from fuzz.generate import generate, program_for
from fuzz.ledger import Ledger, check
from fuzz.limits import Limits, LimitsError
from fuzz.program import Extend, Program, Verify, parse
from fuzz.request import State
from fuzz.trace import MODES, REPLAYED
from stubs.speculation import BLOCKS
from stubs.world import World

LIMITS = Limits(pairs=("triton:fa3",))  # halves that serve every mode
SAMPLE = tuple(program_for(seed, LIMITS) for seed in range(1500))
SMALL = World(context_len=8, max_total_tokens=64, max_running_requests=2)


def modes(program: Program) -> list[str]:
    """The modes of a program's steps, as the executor names them; a draft model extends after each prompt too."""
    chunked: set[int] = set()
    found: list[str] = []
    for op in program.ops:
        rows = getattr(op, "rows", ())
        if isinstance(op, Extend):
            cut = any(row.more or row.request in chunked for row in rows)
            found.append("extend_chunked" if cut else "extend_prefix" if any(row.cached for row in rows) else "extend")
            found += ["draft_prefill"] * program.world.has_draft_model
        elif isinstance(op, Verify):
            padding = "_padded" if op.dead else ""
            found += ["draft_decode"] * (op.draft_decode and program.world.spec_steps > 1)
            found.append(f"verify_{program.world.spec_shape}_{program.world.spec_mode}{padding}")
            found += [f"draft_extend{padding}"] * op.draft_extend
        else:
            padding = "_relabelled" if getattr(op, "beside_extend", 0) else "_padded" if getattr(op, "dead", 0) else ""
            found.append(op.kind + padding)
        chunked -= {row.request for row in rows}
        chunked |= {row.request for row in rows if row.more}
    return found


@cache
def mode_counts() -> Counter[str]:
    return Counter(mode for program in SAMPLE for mode in modes(program))


def test_every_program_is_one_a_scheduler_could_run() -> None:
    for program in SAMPLE:
        check(program)


def test_every_program_survives_its_text() -> None:
    assert [program for program in SAMPLE if parse(program.text) != program] == []


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.binary(max_size=300))
def test_any_bytes_make_a_valid_program(data: bytes) -> None:
    check(generate(Bytes(data), Limits()))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.integers(0, 2**64), st.sampled_from([64, 128, 32]), st.booleans())
def test_forced_page_sizes_make_valid_programs(seed: int, page_size: int, row_overflow: bool) -> None:
    limits = Limits(page_sizes={"triton": (page_size,), "torch_native": (page_size, 1)}, row_overflow=row_overflow)
    program = program_for(seed, limits)
    check(program)
    assert program.world.page_size == page_size


def test_no_bytes_make_the_plainest_program() -> None:
    program = generate(Bytes(b""), Limits())
    assert program.text.splitlines()[1:] == [
        '{"op":"extend","rows":[{"request":0,"tokens":1}]}',
        '{"op":"extend","rows":[{"request":1,"tokens":1}]}',
        '{"op":"extend","rows":[{"request":2,"tokens":1}]}',
        '{"op":"extend","rows":[{"request":3,"tokens":1}]}',
    ]


def test_a_seed_repeats_itself() -> None:
    assert [program_for(seed, LIMITS) for seed in range(50)] == list(SAMPLE[:50])


def test_seeds_differ() -> None:
    assert len({program.hash for program in SAMPLE}) == len(SAMPLE)


@pytest.mark.parametrize("mode", [mode for mode in MODES if not mode.endswith(REPLAYED)])
def test_each_mode_is_at_least_a_fortieth_of_the_steps(mode: str) -> None:
    counts = mode_counts()
    # Drafts of algorithms that have one mode each are rarer than EAGLE's, and padding is now and then.
    rarer = {"ngram": 0.007, "dflash": 0.005, "dspark": 0.005, "padded": 0.0004, "relabelled": 0.0002}
    least = next((share for word, share in rarer.items() if word in mode), 0.025)
    assert counts[mode] / sum(counts.values()) >= least


def test_graphs_are_captured_in_a_third_of_the_plain_worlds_and_in_half_of_the_drafts() -> None:
    worlds = [program_for(seed, Limits(pairs=("triton:fa3",))).world for seed in range(600)]
    plain, drafts = ([world for world in worlds if world.is_speculative is it] for it in (False, True))
    assert 0.27 <= sum(world.graph > 0 for world in plain) / len(plain) <= 0.4
    assert 0.45 <= sum(world.graph > 0 for world in drafts) / len(drafts) <= 0.55
    assert not any(world.graph for world in worlds if world.window_tokens or not world.save_kv_cache)


def test_graphs_are_seldom_captured_of_a_half_that_refuses() -> None:
    worlds = [program_for(seed, Limits(pairs=("triton:torch_native",))).world for seed in range(600)]
    assert 20 <= sum(world.graph > 0 for world in worlds) <= 80


@pytest.mark.parametrize(("runner", "device"), [("real", "cpu"), ("fake", "cuda")])
def test_no_graphs_where_they_cannot_be_captured(runner: str, device: str) -> None:
    limits = Limits(pairs=("triton:fa3",), runner=runner, device=device)
    assert not any(program_for(seed, limits).world.graph for seed in range(100))


def test_programs_have_as_many_ops_as_asked_for() -> None:
    # The pool may refuse now and then; it does so in well under 1 % of programs.
    lengths = Counter(len(program.ops) for program in SAMPLE)
    assert sum(lengths[count] for count in range(4, 15)) >= 1485 and max(lengths) == 14


def test_tokens_stay_within_reason() -> None:
    tokens = sorted(sum(row.tokens for op in p.ops for row in getattr(op, "rows", ())) for p in SAMPLE)
    assert tokens[len(tokens) // 2] < 100 and tokens[len(tokens) * 99 // 100] <= 300 and tokens[-1] <= 500


def reached(program: Program) -> set[str]:
    """Situations at the limits that a program comes to."""
    ledger, world, found = Ledger(program.world), program.world, set()
    left = False
    for op in program.ops:
        fresh = {row.request for row in getattr(op, "rows", ())} - set(ledger.requests)
        found |= {"slots reused"} if left and fresh else set()
        found |= {"readmitted" for row in getattr(op, "rows", ()) if row.request in ledger.numbers(State.RETRACTED)}
        ledger.apply(op)
        left = left or op.kind in ("finish", "retract")
        for number in ledger.numbers(State.RUNNING):
            length = ledger.requests[number].length
            found |= set() if ledger.can_generate(number) else {"length limit"}
            found |= {"past the context"} if length > world.context_len else set()
            found |= {"window"} if world.sliding_window and abs(length - world.sliding_window) < 2 else set()
            if world.page_size > 2:
                found.add(
                    {0: "full page", 1: "page + 1", world.page_size - 1: "page - 1"}.get(length % world.page_size, "")
                )
        found |= {"rows full"} if not ledger.rows_free else set()
        found |= {"pool full"} if not ledger.pages_free else set()
    return found


@cache
def hits() -> Counter[str]:
    """How many programs of the sample come to each situation."""
    return Counter(situation for program in SAMPLE for situation in reached(program))


@pytest.mark.parametrize(
    ("situation", "percent"),
    [
        ("length limit", 10),
        ("past the context", 0.5),
        ("window", 5),
        ("page - 1", 15),
        ("full page", 15),
        ("page + 1", 15),
        ("slots reused", 30),
        ("readmitted", 10),
        ("rows full", 30),
        ("pool full", 2),
    ],
)
def test_limits_are_reached(situation: str, percent: float) -> None:
    assert 100 * hits()[situation] / len(SAMPLE) >= percent


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("page_size", {1, 2, 4, 8, 16, 32, 64, 128}),
        ("layout", {"contiguous", "shuffled", "interleaved", "descending"}),
        ("dtype", {"float32", "float16", "bfloat16"}),
        ("num_layers", {1, 2, 3}),
        ("overlap", {0, 1}),
        ("logit_cap", {0, 30}),
        ("spec_algorithm", {"", "EAGLE", "NGRAM", "DFLASH", "DSPARK"}),
        ("spec_steps", {0, 1, 2, 3, 4, 5, 6, 7, 8}),  # of NGRAM SGLang makes one out of width and breadth
        ("spec_topk", {0, 1, 2, 3}),
        ("spec_mode", {"prefill", "decode"}),
        ("runner", {"fake"}),
    ],
)
def test_worlds_vary(field: str, values: set[object]) -> None:
    assert {getattr(program.world, field) for program in SAMPLE} == values


def test_pairs_runner_and_device_are_those_asked_for() -> None:
    limits = Limits(pairs=("triton:fa3", "fa3:triton"), runner="real", device="cuda")
    worlds = [program_for(seed, limits).world for seed in range(40)]
    assert {(world.pair, world.runner, world.device) for world in worlds} == {
        ("triton:fa3", "real", "cuda"),
        ("fa3:triton", "real", "cuda"),
    }


def test_a_speculative_row_stays_within_its_width() -> None:
    for program in SAMPLE:
        ledger, world = Ledger(program.world), program.world
        for op in program.ops:
            if isinstance(op, Verify):
                row_width = world.context_len + 4 + world.spec_draft_tokens
                assert all(ledger.reserved(number) <= row_width for number in op.requests)
            ledger.apply(op)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(pairs=()), "no pairs given; expected at least one PREFILL:DECODE"),
        (Limits(pairs=("triton",)), "pair is 'triton'; expected PREFILL:DECODE, such as triton:torch_native"),
        (Limits(pairs=("a:b:c",)), "pair is 'a:b:c'; expected PREFILL:DECODE, such as triton:torch_native"),
        (Limits(pairs=("a:",)), "pair is 'a:'; expected PREFILL:DECODE, such as triton:torch_native"),
        (Limits(pairs=("a:a",)), "pair 'a:a' has two equal names, which SGLang never assembles; allow twins"),
        (Limits(ops_min=3, ops_max=2), "ops are 3..2; expected 1 <= ops_min <= ops_max"),
        (
            Limits(pairs=("a:b",), page_sizes={"a": (64,), "b": (32,)}),
            "no page size serves both halves of 'a:b': a takes 64; b takes 32",
        ),
    ],
)
def test_what_is_refused_of_limits(limits: Limits, message: str) -> None:
    with pytest.raises(LimitsError) as caught:
        limits.check()
    assert str(caught.value) == message


def test_twins_behind_their_option() -> None:
    limits = Limits(pairs=("triton:triton",), twins=True)
    limits.check()
    assert program_for(0, limits).world.pair == "triton:triton"


def test_speculation_stays_within_what_a_pair_verifies_in() -> None:
    pairs = ("a:b", "b:a", "a:c")
    limits = Limits(pairs=pairs, speculative={"a:b": {"prefill": 2}, "b:a": {"decode": 1, "prefill": 1}})
    worlds = [program_for(seed, limits).world for seed in range(400)]
    drawn = {(world.pair, world.spec_mode, world.spec_steps) for world in worlds if world.has_draft_model}
    assert drawn == {("a:b", "prefill", 1), ("a:b", "prefill", 2), ("b:a", "decode", 1), ("b:a", "prefill", 1)}
    modelless = {(world.pair, world.spec_mode) for world in worlds if world.spec_algorithm in ("NGRAM", *BLOCKS)}
    assert modelless == {("a:b", "prefill"), ("b:a", "decode"), ("b:a", "prefill")}
    assert {world.pair for world in worlds} == set(pairs)


def small_scope(world: World, ops: int) -> list[Program]:
    limits = Limits(worlds=(world,), ops_min=ops, ops_max=ops)
    return list(takewhile(lambda program: program.seed == 0, (generate(choices, limits) for choices in exhaustive())))


def test_exhaustive_search_of_one_op() -> None:
    texts = ["\n".join(program.text.splitlines()[1:]) for program in small_scope(SMALL, 1)]
    assert texts == [
        '{"op":"extend","rows":[{"request":0,"tokens":1}]}',
        '{"op":"extend","rows":[{"request":0,"tokens":2}]}',
        '{"op":"extend","rows":[{"more":1,"request":0,"tokens":1}]}',
        '{"op":"extend","rows":[{"request":0,"tokens":1},{"request":1,"tokens":1}]}',
        '{"op":"extend","rows":[{"request":0,"tokens":1},{"request":1,"tokens":2}]}',
        '{"op":"extend","rows":[{"request":0,"tokens":1},{"more":1,"request":1,"tokens":1}]}',
        '{"op":"extend","rows":[{"request":0,"tokens":2},{"request":1,"tokens":1}]}',
        '{"op":"extend","rows":[{"request":0,"tokens":2},{"request":1,"tokens":2}]}',
        '{"op":"extend","rows":[{"request":0,"tokens":2},{"more":1,"request":1,"tokens":1}]}',
        '{"op":"idle"}',
    ]


@pytest.mark.parametrize(
    ("world", "kinds"),
    [
        (SMALL, {"extend": 24, "decode": 16, "mixed": 10, "finish": 32, "retract": 12, "idle": 10}),
        (
            replace(SMALL, spec_algorithm="EAGLE", spec_steps=1, spec_topk=1, spec_draft_tokens=2),
            {"extend": 22, "verify": 80, "finish": 32, "retract": 12, "idle": 10},
        ),
    ],
    ids=["plain", "speculative"],
)
def test_exhaustive_search_of_two_ops_has_every_second_op(world: World, kinds: dict[str, int]) -> None:
    seconds = Counter(program.ops[1].kind for program in set(small_scope(world, 2)))
    assert seconds == Counter(kinds)
