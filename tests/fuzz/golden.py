"""The programs in tests/data, with the steps that each takes, and what a trace is compared by."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.program import Program, parse
from fuzz.trace import Trace

DATA = Path(__file__).parent.parent / "data"
SECONDS = 120
MODES = {
    "extend_decode": ["extend", "decode", "decode"],
    "chunked": ["extend_chunked", "extend_chunked", "extend_chunked", "decode"],
    "mixed": ["extend", "mixed", "mixed"],
    "prefix_hit": ["extend", "extend_prefix", "finish", "extend_prefix"],
    "retract": ["extend", "decode", "retract", "extend", "decode"],
    "idle": ["idle", "extend", "idle"],
    "verify_chain": ["extend", "draft_prefill", "verify_chain_prefill", "draft_extend", "verify_chain_prefill"],
    "verify_tree": ["extend", "draft_prefill", "verify_tree_decode", "draft_extend", "finish"],
}


def golden(name: str, **world: Any) -> Program:
    """A golden program, its world changed as told."""
    program = parse((DATA / f"{name}.jsonl").read_text())
    return replace(program, world=replace(program.world, **world))


def signatures(trace: Trace) -> list[str]:
    return [str(finding.signature) for finding in trace.findings]


def timeless(trace: Trace) -> Any:
    data = trace.to_json()
    for part in (data, *data["steps"]):
        del part["seconds"]
    return json.loads(json.dumps(data))
