"""From a trace to what a campaign keeps of it: the record, and the findings worth a note."""

from __future__ import annotations

import time
from dataclasses import replace

from fuzz.confirm import bugs
from fuzz.finding import Finding, Signature, Verdict
from fuzz.order import CampaignOptions
from fuzz.program import Program
from fuzz.record import Record
from fuzz.trace import Trace


def noteworthy(trace: Trace) -> list[Finding]:
    """Bugs to be believed, and what the harness lacks; refusals of the target and programs cut off are in records."""
    ours = (Verdict.STUB_GAP, Verdict.INFRA)
    return [*bugs(trace), *(finding for finding in trace.findings if finding.verdict in ours)]


def with_outcome(record: Record, trace: Trace) -> Record:
    """The record with what the trace says; of several findings the first of the worst verdict stands in it."""
    leading = next((finding for finding in trace.findings if finding.verdict is trace.verdict), None)
    counted = tuple(dict.fromkeys(str(finding.signature) for finding in noteworthy(trace)))
    filled = replace(
        record, verdict=trace.verdict.value, seconds=trace.seconds, steps=trace.step_counts, signatures=counted
    )
    if leading is None:
        return filled
    reason = " ".join(leading.message.split())[:500]
    return replace(filled, signature=str(leading.signature), title=leading.title, reason=reason)


def not_run(reason: str) -> Trace:
    signature = Signature("harness", "not_run", "worker")
    finding = Finding(Verdict.INFRA, signature, "not run to its end", reason, 0, "unknown")
    return Trace(steps=(), findings=(finding,), seconds=0.0, sglang_version="")


def blank_record(
    options: CampaignOptions, program: Program, seed: int, version: str, elapsed_seconds: float, worker: int
) -> Record:
    """The record of a program that has yet to run. ``version`` is SGLang's."""
    world = program.world
    return Record(
        at=time.time(),
        elapsed_seconds=elapsed_seconds,
        seed=seed,
        program=program.hash,
        ops=len(program.ops),
        verdict="",
        signature="",
        title="",
        reason="",
        seconds=0.0,
        steps=(),
        target=options.target,
        sglang_version=version,
        device=world.device,
        runner=world.runner,
        prefill=world.prefill,
        decode=world.decode,
        engine=options.engine,
        worker=worker,
    )
