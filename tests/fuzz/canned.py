"""Findings as a campaign would hand them to the script writer, for the tests of it."""

from __future__ import annotations

from typing import Any

from fuzz.finding import Finding, Signature, Verdict
from fuzz.program import Decode, Extend, Finish, Program, Row, Verify
from fuzz.script import Provenance
from fuzz.trace import Step, Trace
from stubs.world import World

Canned = tuple[Program, Finding, Trace]

PROVENANCE = Provenance(
    found_on="pypi:0.5.16",
    seen_on=("pypi:0.5.16",),
    shown=3,
    runs=3,
    command="seamripper run --target pypi:0.5.16 --seed 0",
    versions="Python 3.11, torch 2.13.0",
)


def batch(
    mode: str, rows: list[int], prefix: list[int], slots: list[list[int]], *, host: bool = True
) -> dict[str, Any]:
    """A step as the executor describes it, for requests 0, 1, ..."""
    counts = [len(own) - before for own, before in zip(slots, prefix)]
    lens = list(prefix) if mode == "TARGET_VERIFY" else [len(own) for own in slots]
    return {
        "forward_mode": mode,
        "requests": list(range(len(rows))),
        "req_pool_indices": rows,
        "prefix": prefix,
        "count": counts,
        "slots": slots,
        "seq_lens": lens,
        "seq_lens_cpu": lens if host else None,
        "seq_lens_sum": sum(lens) if host else None,
    }


def missing_attribute() -> Canned:
    """An attribute that the wrapper lacks, read before the verify step has a batch."""
    world = World(
        prefill="triton", decode="fa3", spec_algorithm="EAGLE", spec_steps=1, spec_topk=1, spec_draft_tokens=2
    )
    program = Program(world, (Extend((Row(0, 1),)), Verify((0,), (1,), 0)))
    finding = Finding(
        Verdict.BUG,
        Signature("contract", "AttributeError", "HybridAttnBackend.max_context_len"),
        "AttributeError: HybridAttnBackend has no 'max_context_len', read by build_eagle_verify_input",
        "AttributeError: 'HybridAttnBackend' object has no attribute 'max_context_len'",
        1,
        "verify_chain_prefill",
        {"object": "HybridAttnBackend", "attribute": "max_context_len"},
    )
    extend = batch("EXTEND", [1], [0], [[1]])
    steps = (
        Step(0, "extend", Verdict.OK, 0.1, extend),
        Step(0, "draft_prefill", Verdict.OK, 0.1, extend),
        Step(1, "verify_chain_prefill", Verdict.BUG, 0.1, {}),
    )
    return program, finding, Trace(steps, (finding,), 0.3, "0.5.16")


def wrong_output() -> Canned:
    """A decode whose output is wrong, on pages of 4."""
    program = Program(
        World(prefill="triton", decode="fa3", page_size=4), (Extend((Row(0, 5), Row(1, 3))), Decode((0, 1)))
    )
    finding = Finding(
        Verdict.BUG,
        Signature("numeric", "wrong_output", "FlashAttentionBackend.decode"),
        "decode on FlashAttentionBackend gives a wrong output",
        "largest error 0.5",
        1,
        "decode",
    )
    slots = [[4, 5, 6, 7, 8], [12, 13, 14]]
    steps = (
        Step(0, "extend", Verdict.OK, 0.1, batch("EXTEND", [1, 2], [0, 0], slots)),
        Step(1, "decode", Verdict.BUG, 0.1, batch("DECODE", [1, 2], [5, 3], [[*slots[0], 9], [*slots[1], 15]])),
    )
    return program, finding, Trace(steps, (finding,), 0.2, "0.5.16")


def kernel_error() -> Canned:
    """An exception in a backend's decode, after the first request has gone and left its row to another."""
    program = Program(
        World(prefill="fa3", decode="triton"), (Extend((Row(0, 2),)), Finish((0,)), Extend((Row(1, 2),)), Decode((1,)))
    )
    finding = Finding(
        Verdict.BUG,
        Signature("contract", "RuntimeError", "TritonAttnBackend.forward_decode"),
        "RuntimeError in TritonAttnBackend.forward_decode: boom",
        "RuntimeError: boom",
        3,
        "decode",
    )
    steps = (
        Step(0, "extend", Verdict.OK, 0.1, batch("EXTEND", [1], [0], [[9, 4]])),
        Step(1, "finish", Verdict.OK, 0.1, {"requests": [0]}),
        Step(2, "extend", Verdict.OK, 0.1, batch("EXTEND", [1], [0], [[7, 2]]) | {"requests": [1]}),
        Step(3, "decode", Verdict.BUG, 0.1, {}),
    )
    return program, finding, Trace(steps, (finding,), 0.2, "0.5.12")
