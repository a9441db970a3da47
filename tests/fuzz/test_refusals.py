"""Ops that SGLang's scheduler could not run next, and what the ledger says of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.ledger import Ledger, check
from fuzz.program import Decode, Extend, Finish, Mixed, Program, ProgramError, Retract, Row, Verify
from fuzz.request import InvalidOp, State
from stubs.world import World, WorldError

WORLD = World()
PAGED = World(page_size=4)
CHAIN = World(spec_algorithm="EAGLE", spec_steps=2, spec_topk=1, spec_draft_tokens=3)
ENCODERS = World(encoder_decoder=1, num_layers=2)
RAGGED = World(spec_algorithm="DSPARK", spec_steps=1, spec_topk=1, spec_draft_tokens=4)
TINY = World(context_len=12)  # prompts up to 6 tokens, requests up to 10
FIRST = Extend((Row(0, 5),))

ENCODER = Extend((Row(0, 5, encoder=3),))

REFUSED = {
    "encoder: none in this world": (
        WORLD,
        (ENCODER,),
        "op 0 (extend): request 0 has 3 tokens of an encoder; expected 0: the world has none",
    ),
    "encoder: nothing behind it": (
        ENCODERS,
        (Extend((Row(0, 3, encoder=3),)),),
        "op 0 (extend): request 0 extends by 3 tokens, 3 of them its encoder's; expected one more at least",
    ),
    "encoder: another than its prefix has": (
        ENCODERS,
        (ENCODER, Extend((Row(1, 2, 0, 4, encoder=2),))),
        "op 1 (extend): request 1 has 2 tokens of an encoder; expected 3, as it had or its prefix has",
    ),
    "encoder: another than it had": (
        ENCODERS,
        (ENCODER, Retract((0,)), Extend((Row(0, 6),))),
        "op 2 (extend): request 0 has 0 tokens of an encoder; expected 3, as it had or its prefix has",
    ),
    "encoder: known in part": (
        ENCODERS,
        (ENCODER, Extend((Row(1, 2, 0, 2, encoder=3),))),
        "op 1 (extend): request 1 knows 2 tokens of its encoder's 3; expected all of them or none",
    ),
    "encoder: in chunks": (
        ENCODERS,
        (Extend((Row(0, 5, more=1, encoder=3),)),),
        "op 0 (extend): request 0 is cut in a world with encoders; expected a whole prompt: SGLang cuts none of such models",
    ),
    "encoder: mixed": (
        ENCODERS,
        (ENCODER, Mixed((Row(1, 1),), (0,))),
        "op 1 (mixed): mixed in a world with encoders; expected extend: SGLang serves them without chunks of prompts",
    ),
    "encoder: padded": (
        ENCODERS,
        (ENCODER, Decode((0,), dead=1)),
        "op 1 (decode): padding in a world with encoders; expected none: not tried with them yet",
    ),
    "rows: none": (WORLD, (Extend(()),), "op 0 (extend): no rows; expected at least one"),
    "rows: twice": (
        WORLD,
        (Extend((Row(0, 1), Row(0, 1))),),
        "op 0 (extend): request 0 twice; expected each request once",
    ),
    "rows: no tokens": (
        WORLD,
        (Extend((Row(0, 0),)),),
        "op 0 (extend): request 0 extends by 0 tokens; expected at least 1",
    ),
    "rows: running": (
        WORLD,
        (FIRST, FIRST),
        "op 1 (extend): request 0 is running; expected a new, retracted or mid-chunk request",
    ),
    "rows: finished": (
        WORLD,
        (FIRST, Finish((0,)), FIRST),
        "op 2 (extend): request 0 is finished; expected a new, retracted or mid-chunk request",
    ),
    "rows: finished and cached": (
        WORLD,
        (FIRST, Finish((0,), keep=1), FIRST),
        "op 2 (extend): request 0 is finished and cached; expected a new, retracted or mid-chunk request",
    ),
    "rows: too many": (
        World(max_running_requests=2),
        (FIRST, Extend((Row(1, 1), Row(2, 1)))),
        "op 1 (extend): 2 requests join; expected at most 1 (max_running_requests)",
    ),
    "prompt: too long": (
        TINY,
        (Extend((Row(0, 7),)),),
        "op 0 (extend): request 0 has 7 prompt tokens; expected at most 6",
    ),
    "chunk: off the page": (
        PAGED,
        (Extend((Row(0, 5, more=1),)),),
        "op 0 (extend): request 0 is cut at 5 tokens; expected a multiple of page size 4",
    ),
    "chunk: nothing left": (
        TINY,
        (Extend((Row(0, 6, more=1),)),),
        "op 0 (extend): request 0 has 6 prompt tokens; expected at most 5",
    ),
    "chunk: not last": (
        WORLD,
        (Extend((Row(0, 1, more=1), Row(1, 1))),),
        "op 0 (extend): request 0 is cut into chunks before the last row; expected the last row at most",
    ),
    "chunk: passed over": (
        WORLD,
        (Extend((Row(0, 1, more=1),)), Extend((Row(1, 1), Row(0, 1)))),
        "op 1 (extend): the first row is request 1; expected the mid-chunk request 0",
    ),
    "chunk: odd flag": (WORLD, (Extend((Row(0, 1, more=2),)),), "op 0 (extend): more is 2; expected 0 or 1"),
    "cache: from nowhere": (
        WORLD,
        (Extend((Row(0, 1, cached=4),)),),
        "op 0 (extend): request 0 has 4 cached tokens from nowhere; expected cached_from",
    ),
    "cache: off the page": (
        PAGED,
        (FIRST, Extend((Row(1, 1, 0, 3),))),
        "op 1 (extend): 3 cached tokens; expected a multiple of page size 4, not 0",
    ),
    "cache: empty": (
        PAGED,
        (FIRST, Extend((Row(1, 1, 0, 0),))),
        "op 1 (extend): 0 cached tokens; expected a multiple of page size 4, not 0",
    ),
    "cache: more than whole pages": (
        PAGED,
        (FIRST, Extend((Row(1, 1, 0, 8),))),
        "op 1 (extend): 8 cached tokens from request 0; expected at most 4",
    ),
    "cache: of the same batch": (
        WORLD,
        (Extend((Row(0, 5), Row(1, 1, 0, 4))),),
        "op 0 (extend): 4 cached tokens from request 0; expected at most 0",
    ),
    "cache: of decoded tokens": (
        WORLD,
        (FIRST, Decode((0,)), Extend((Row(1, 1, 0, 6),))),
        "op 2 (extend): 6 cached tokens from request 0; expected at most 5",
    ),
    "cache: of one that is gone": (
        WORLD,
        (FIRST, Finish((0,)), Extend((Row(1, 1, 0, 1),))),
        "op 2 (extend): 1 cached tokens from request 0; expected at most 0",
    ),
    "cache: of one retracted": (
        WORLD,
        (FIRST, Retract((0,)), Extend((Row(1, 1, 0, 1),))),
        "op 2 (extend): 1 cached tokens from request 0; expected at most 0",
    ),
    "cache: in mid-chunk": (
        WORLD,
        (FIRST, Extend((Row(1, 1, more=1),)), Extend((Row(1, 1, 0, 1),))),
        "op 2 (extend): request 1 takes a cached prefix in mid-chunk; expected a prefix in the first chunk",
    ),
    "cache: pairs of tokens under EAGLE": (
        CHAIN,
        (FIRST, Extend((Row(1, 1, 0, 5),))),
        "op 1 (extend): 5 cached tokens from request 0; expected at most 4",
    ),
    "retracted: not all of it": (
        WORLD,
        (FIRST, Retract((0,)), Extend((Row(0, 5),))),
        "op 2 (extend): request 0 comes back with 5 tokens; expected its prompt and output, 6",
    ),
    "decode: nobody": (WORLD, (Decode(()),), "op 0 (decode): no requests; expected at least one"),
    "decode: unknown": (WORLD, (Decode((4,)),), "op 0 (decode): request 4 is unknown; expected a running request"),
    "decode: twice": (WORLD, (FIRST, Decode((0, 0))), "op 1 (decode): request 0 twice; expected each request once"),
    "decode: mid-chunk": (
        WORLD,
        (Extend((Row(0, 5, more=1),)), Decode((0,))),
        "op 1 (decode): request 0 is mid-chunk; expected a running request",
    ),
    "decode: retracted": (
        WORLD,
        (FIRST, Retract((0,)), Decode((0,))),
        "op 2 (decode): request 0 is retracted; expected a running request",
    ),
    "decode: at the limit": (
        TINY,
        (Extend((Row(0, 6),)), *[Decode((0,))] * 5),
        "op 5 (decode): request 0 has 10 tokens; expected below 10, the length limit",
    ),
    "decode: speculative": (
        CHAIN,
        (FIRST, Decode((0,))),
        "op 1 (decode): decode in a speculative world; expected verify",
    ),
    "mixed: speculative": (
        CHAIN,
        (FIRST, Mixed((Row(1, 1),), (0,))),
        "op 1 (mixed): mixed in a speculative world; expected extend",
    ),
    "mixed: no decode": (WORLD, (Mixed((Row(0, 1),), ()),), "op 0 (mixed): no requests; expected at least one"),
    "mixed: no extend": (WORLD, (FIRST, Mixed((), (0,))), "op 1 (mixed): no rows; expected at least one"),
    "verify: not speculative": (
        WORLD,
        (FIRST, Verify((0,), (1,))),
        "op 1 (verify): verify in a world that is not speculative; expected decode",
    ),
    "verify: accepts missing": (
        CHAIN,
        (FIRST, Verify((0,), ())),
        "op 1 (verify): 0 accepts; expected one for each of 1 requests",
    ),
    "verify: accepts none": (CHAIN, (FIRST, Verify((0,), (0,))), "op 1 (verify): accepts 0 tokens; expected 1..3"),
    "verify: accepts too many": (CHAIN, (FIRST, Verify((0,), (4,))), "op 1 (verify): accepts 4 tokens; expected 1..3"),
    "verify: a part of a draft that is verified whole": (
        CHAIN,
        (FIRST, Verify((0,), (1,), verify_lens=(2,))),
        "op 1 (verify): verify_lens [2] of EAGLE; expected none",
    ),
    "verify: parts missing": (
        RAGGED,
        (FIRST, Verify((0,), (1,), verify_lens=(1, 2))),
        "op 1 (verify): 2 verify_lens; expected none, or one for each of 1 requests",
    ),
    "verify: no part": (
        RAGGED,
        (FIRST, Verify((0,), (1,), verify_lens=(0,))),
        "op 1 (verify): verifies 0 tokens; expected 1..4",
    ),
    "verify: accepts more than is verified": (
        RAGGED,
        (FIRST, Verify((0,), (3,), verify_lens=(2,))),
        "op 1 (verify): accepts 3 tokens; expected 1..2",
    ),
    "verify: odd flag": (
        CHAIN,
        (FIRST, Verify((0,), (1,), draft_extend=2)),
        "op 1 (verify): draft_extend is 2; expected 0 or 1",
    ),
    "finish: mid-chunk": (
        WORLD,
        (Extend((Row(0, 5, more=1),)), Finish((0,))),
        "op 1 (finish): request 0 is mid-chunk; expected a running request",
    ),
    "finish: odd flag": (WORLD, (FIRST, Finish((0,), keep=2)), "op 1 (finish): keep is 2; expected 0 or 1"),
    "retract: twice over": (
        WORLD,
        (FIRST, Retract((0,)), Retract((0,))),
        "op 2 (retract): request 0 is retracted; expected a running request",
    ),
    "pool: prompts": (
        World(page_size=4, max_total_tokens=32),
        (Extend((Row(0, 17), Row(1, 13))),),
        "op 0 (extend): 9 more pages; expected at most 8 (max_total_tokens)",
    ),
    "pool: decode": (
        World(page_size=4, max_total_tokens=32),
        (Extend((Row(0, 16), Row(1, 16))), Decode((0,))),
        "op 1 (decode): 1 more pages; expected at most 0 (max_total_tokens)",
    ),
    "pool: verify": (
        replace(CHAIN, max_total_tokens=16),
        (Extend((Row(0, 9),)), Verify((0,), (1,)), Extend((Row(1, 2),))),
        "op 2 (extend): 2 more pages; expected at most 1 (max_total_tokens)",
    ),
    "pool: kept": (
        World(max_total_tokens=16),
        (Extend((Row(0, 10),)), Finish((0,), keep=1), Extend((Row(1, 7),))),
        "op 2 (extend): 7 more pages; expected at most 6 (max_total_tokens)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    world, ops, message = REFUSED[name]
    with pytest.raises(ProgramError) as caught:
        check(Program(world, ops))
    assert str(caught.value) == message


def test_a_bad_world_is_told_first() -> None:
    with pytest.raises(WorldError, match=r"^world\.page_size is 0; expected 1\.\.128$"):
        check(Program(World(page_size=0), (Decode((9,)),)))


def test_a_refused_op_changes_nothing() -> None:
    world = World(page_size=4, max_total_tokens=32)
    ledger = Ledger(world)
    ledger.apply(Extend((Row(0, 16),)))
    ledger.apply(Retract((0,)))
    with pytest.raises(InvalidOp):
        ledger.apply(Extend((Row(0, 17), Row(1, 20))))
    assert (ledger.pages_free, list(ledger.requests), ledger.requests[0].state) == (8, [0], State.RETRACTED)
