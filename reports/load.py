"""Read what a run left behind (JSON lines) into DataFrames with declared dtypes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from fuzz.finding import Signature, Verdict
from fuzz.record import Record, RecordError

VERDICTS = tuple(verdict.value for verdict in Verdict)
VERDICT_DTYPE = pd.CategoricalDtype(list(VERDICTS))

RECORD_DTYPES: dict[str, Any] = {
    "at": "datetime64[ns, UTC]",
    "elapsed_seconds": "float64",
    "seed": "int64",
    "program": "string",
    "ops": "int64",
    "verdict": VERDICT_DTYPE,
    "signature": "string",
    "title": "string",
    "reason": "string",
    "seconds": "float64",
    "steps": "int64",
    "target": "string",
    "sglang_version": "string",
    "device": "string",
    "runner": "string",
    "pair": "string",
    "prefill": "string",
    "decode": "string",
    "engine": "string",
    "worker": "int64",
}
STEP_DTYPES: dict[str, Any] = {
    "pair": "string",
    "runner": "string",
    "worker": "int64",
    "mode": "string",
    "verdict": VERDICT_DTYPE,
    "count": "int64",
}
FINDING_DTYPES: dict[str, Any] = {
    "signature": "string",
    "oracle": "string",
    "kind": "string",
    "place": "string",
    "title": "string",
    "message": "string",
    "verdict": VERDICT_DTYPE,
    "known": "bool",
    "mode": "string",
    "op_index": "int64",
    "target": "string",
    "runner": "string",
    "pair": "string",
    "seed": "int64",
    "shown": "int64",
    "runs": "int64",
    "first_seconds": "float64",
    "first_programs": "int64",
    "count": "int64",
    "shrunk_ops": "int64",
    "script": "string",
    "program": "string",
    "program_hash": "string",
    "evidence": "object",
}

T = TypeVar("T")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that could not be read: half written by a worker that died, or not ours."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """Everything a run's folder holds.

    ``records`` has one row per program (dtypes: RECORD_DTYPES; ``steps`` is their number), ``steps`` one row per
    program, mode and verdict (STEP_DTYPES), ``findings`` one row per line of findings.jsonl (FINDING_DTYPES;
    reliability is ``shown`` of ``runs``, and ``runs`` is 0 where the program was not run again). ``about`` is what
    run.json says beside the records (title, command, ...).
    """

    records: pd.DataFrame
    steps: pd.DataFrame
    findings: pd.DataFrame
    broken: tuple[BrokenLine, ...]
    about: dict[str, str]


def load_run(folder: Path) -> Run:
    """Read a run's folder. An empty folder gives empty frames; a broken line is listed and never a stop.

    Raises NotADirectoryError when there is no such folder.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder; expected the --out folder of a run")
    broken: list[BrokenLine] = []
    files = sorted({*folder.glob("records.jsonl"), *folder.glob("records-*.jsonl")})
    programs = [program for file in files for program in _read(file, _program, broken)]
    findings = list(_read(folder / "findings.jsonl", _finding, broken))
    about = list(_read(folder / "run.json", _about, broken))
    return Run(
        records=_frame([record for record, _ in programs], RECORD_DTYPES),
        steps=_frame([step for _, steps in programs for step in steps], STEP_DTYPES),
        findings=_frame(findings, FINDING_DTYPES),
        broken=tuple(broken),
        about=about[-1] if about else {},
    )


def load_records(folder: Path) -> pd.DataFrame:
    """One row per program; see Run."""
    return load_run(folder).records


def load_steps(folder: Path) -> pd.DataFrame:
    """One row per program, mode and verdict; see Run."""
    return load_run(folder).steps


def load_findings(folder: Path) -> pd.DataFrame:
    """One row per finding; see Run."""
    return load_run(folder).findings


def _read(file: Path, parse: Callable[[str], T], broken: list[BrokenLine]) -> Iterator[T]:
    if not file.exists():
        return
    # A worker killed in mid-write can leave half a UTF-8 sequence: such a line is broken, not the file.
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield parse(line)
            except (RecordError, ValueError, KeyError, TypeError, RecursionError) as error:
                broken.append(BrokenLine(file.name, number, f"{type(error).__name__}: {error}"))


def _program(line: str) -> tuple[Row, list[Row]]:
    """A record line as its row of ``records`` and its rows of ``steps``."""
    record = Record.from_line(line)
    data = asdict(record) | {
        "at": pd.Timestamp(record.at, unit="s", tz="UTC"),
        "steps": sum(count for _, _, count in record.steps),
        "pair": f"{record.prefill}:{record.decode}",
    }
    steps = [data | {"mode": mode, "verdict": verdict, "count": count} for mode, verdict, count in record.steps]
    return _row(data, RECORD_DTYPES), [_row(step, STEP_DTYPES) for step in steps]


def _finding(line: str) -> Row:
    data = json.loads(line)
    signature = Signature.parse(data["signature"])
    shown, runs = data["reliability"]
    parts = {"oracle": signature.oracle, "kind": signature.kind, "place": signature.place}
    defaults = {"script": data["script"] or "", "known": data.get("known", False)}
    return _row(data | parts | defaults | {"shown": shown, "runs": runs}, FINDING_DTYPES)


def _about(line: str) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in dict(json.loads(line)).items()}


def _row(data: Row, dtypes: dict[str, Any]) -> Row:
    """The declared columns of ``data``, each checked, so that one odd line cannot spoil a column's dtype."""
    return {name: _CHECKS[str(dtype)](data[name]) for name, dtype in dtypes.items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"got {value!r}; expected a string")
    # JSON can spell half a surrogate pair, which no file can hold: it becomes U+FFFD.
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "int64": int,
    "float64": float,
    "category": lambda value: Verdict(value).value,
    "bool": bool,
    "object": lambda value: {_text(name): _text(text) for name, text in dict(value).items()},
    "datetime64[ns, UTC]": pd.Timestamp,
}


def _frame(rows: list[Row], dtypes: dict[str, Any]) -> pd.DataFrame:
    """A frame with exactly the declared columns and dtypes, also when there is no row."""
    return pd.DataFrame(rows, columns=list(dtypes)).astype(dtypes)
