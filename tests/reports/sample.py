"""Literal record and finding lines that the report tests write to a folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.record import Record

OK = Record(
    at=1_800_000_010.0,
    elapsed_seconds=10.0,
    seed=7,
    program="00000000000000aa",
    ops=3,
    verdict="ok",
    signature="",
    title="",
    reason="",
    seconds=2.0,
    steps=(("decode", "ok", 3), ("extend", "ok", 1)),
    target="pypi:0.5.16",
    sglang_version="0.5.16",
    device="cpu",
    runner="fake",
    prefill="triton",
    decode="fa3",
    engine="random",
    worker=0,
)
BUG = replace(
    OK,
    at=1_800_000_020.0,
    elapsed_seconds=20.0,
    program="00000000000000bb",
    verdict="bug",
    signature="contract/AttributeError/Wrapper.field",
    title="Wrapper lacks field",
    seconds=0.5,
    steps=(("extend", "ok", 1), ("verify_chain_prefill", "bug", 1)),
)
GAP = replace(
    OK,
    at=1_800_000_040.0,
    elapsed_seconds=40.0,
    program="00000000000000cc",
    verdict="stub_gap",
    reason="FakeModelRunner lacks some_field",
    seconds=1.5,
    steps=(("draft_extend", "stub_gap", 1),),
    decode="torch_native",
    worker=1,
)
FINDING: dict[str, Any] = {
    "verdict": "bug",
    "signature": "contract/AttributeError/Wrapper.field",
    "title": "Wrapper lacks <field> | read by\nthe caller",
    "message": "AttributeError: no 'field'",
    "op_index": 1,
    "mode": "verify_chain_prefill",
    "evidence": {"traceback": "line 1 <b>\nline 2 \x1b[0m"},
    "program": '{"seamripper":1}\n{"op":"idle"}\n',
    "program_hash": "00000000000000bb",
    "target": "pypi:0.5.16",
    "runner": "fake",
    "pair": "triton:fa3",
    "seed": 7,
    "reliability": [2, 3],
    "first_seconds": 20.0,
    "first_programs": 2,
    "count": 4,
    "shrunk_ops": 1,
    "script": "repros/contract-AttributeError-Wrapper_field-12345678.py",
}


def write_run(folder: Path, records: list[Record], findings: list[dict[str, Any]]) -> Path:
    """A run's folder with one records file per worker."""
    for worker in {record.worker for record in records}:
        lines = [record.to_line() for record in records if record.worker == worker]
        (folder / f"records-{worker}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "findings.jsonl").write_text("".join(json.dumps(f) + "\n" for f in findings), encoding="utf-8")
    return folder
