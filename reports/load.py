"""Read what a run left behind (JSON lines) into DataFrames with declared dtypes."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    "real": "string",
    "dismissed": "string",
    "otherwise": "string",
    "beside": "string",
}
KNOWN_DTYPES: dict[str, Any] = {
    "signature": "string",
    "script": "string",
    "reason": "string",
    "state": "string",
    "count": "int64",
    "detail": "string",
}
SINCE_DTYPES: dict[str, Any] = {
    "signature": "string",
    "title": "string",
    "pair": "string",
    "script": "string",
    "shown": "int64",
    "runs": "int64",
    "state": "string",
    "count": "int64",
    "reruns": "int64",
    "detail": "string",
}
CELL_DTYPES: dict[str, Any] = {"pair": "string", "mode": "string", "state": "string", "reason": "string"}

T = TypeVar("T")
Row = tuple[Any, ...]
AT_MAX = 2**33  # Unix seconds, in the year 2242: what lies beyond is no time, and pandas would stop at it


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
    pair, runner, worker, mode and verdict (STEP_DTYPES), ``findings`` one row per line of findings.jsonl
    (FINDING_DTYPES; reliability is ``shown`` of ``runs``, and ``runs`` is 0 where the program was not run again;
    ``otherwise`` says what the runs came to that did not show it, ``beside`` the signatures of what else its program
    shows, a line each, ``real`` the reliability under the real runner, or
    why it cannot tell, ``dismissed`` why it is no finding, "" where it is). ``known`` has one row per known fault that
    the run was given (KNOWN_DTYPES; ``state`` is met, shows, gone, unclear or not tried), ``since`` one per fault that
    an earlier run had found (SINCE_DTYPES; as ``fuzz.since.Sequel``), ``cells`` one per pair and mode in which no step
    ran (CELL_DTYPES; ``state`` and ``reason`` as in ``fuzz.cells``). ``about`` is what run.json says beside the records
    (title, command, ...).
    """

    records: pd.DataFrame
    steps: pd.DataFrame
    findings: pd.DataFrame
    known: pd.DataFrame
    since: pd.DataFrame
    cells: pd.DataFrame
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
    # Added up on the way: a night has a million programs, each with several modes, and no table looks at one of them.
    steps: Counter[Row] = Counter()
    records: list[Row] = []
    for record, row in (both for file in files for both in _read(file, _record, broken)):
        records.append(row)
        for mode, verdict, count in record.steps:
            steps[_pair(record), record.runner, record.worker, mode, verdict] += count
    findings = list(_read(folder / "findings.jsonl", _finding_row, broken))
    about = list(_read(folder / "run.json", _about, broken))
    return Run(
        records=_frame(records, RECORD_DTYPES),
        steps=_frame([(*key, count) for key, count in steps.items()], STEP_DTYPES),
        findings=_frame(findings, FINDING_DTYPES),
        known=_frame(list(_read(folder / "known.jsonl", _plain_row(KNOWN_DTYPES), broken)), KNOWN_DTYPES),
        since=_frame(list(_read(folder / "since.jsonl", _plain_row(SINCE_DTYPES), broken)), SINCE_DTYPES),
        cells=_frame(list(_read(folder / "cells.jsonl", _plain_row(CELL_DTYPES), broken)), CELL_DTYPES),
        broken=tuple(broken),
        about=about[-1] if about else {},
    )


def load_records(folder: Path) -> pd.DataFrame:
    """One row per program; see Run."""
    return load_run(folder).records


def load_steps(folder: Path) -> pd.DataFrame:
    """One row per pair, runner, worker, mode and verdict; see Run."""
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


def _record(line: str) -> tuple[Record, Row]:
    """A record, and its row of the frame: every field is what it should be, or one odd line would spoil a column."""
    record = Record.from_line(line)
    for _, verdict, _ in record.steps:
        Verdict(verdict)
    derived = {"pair": _pair(record), "steps": sum(count for _, _, count in record.steps)}
    return record, tuple(check(derived[n] if n in derived else getattr(record, n)) for n, check in _RECORD_CHECKS)


def _pair(record: Record) -> str:
    return f"{record.prefill}:{record.decode}"


def _finding_row(line: str) -> Row:
    data = json.loads(line)
    signature = Signature.parse(data["signature"])
    shown, runs = data["reliability"]
    data |= {"oracle": signature.oracle, "kind": signature.kind, "place": signature.place}
    data |= {"script": data["script"] or "", "known": data.get("known", False), "shown": shown, "runs": runs}
    data |= {"real": _under_real_runner(data.get("real")), "dismissed": data.get("dismissed", "")}
    data |= {"otherwise": data.get("otherwise", ""), "beside": "\n".join(data.get("beside", []))}
    return tuple(check(data[name]) for name, check in _checks(FINDING_DTYPES))


def _under_real_runner(real: dict[str, Any] | None) -> str:
    if real is None:
        return ""
    return (
        f"{int(real['shown'])} of {int(real['runs'])} runs" if real["runs"] else f"cannot be tried ({real['why_not']})"
    )


def _plain_row(dtypes: dict[str, Any]) -> Callable[[str], Row]:
    """Reads a line that has the columns as they are."""
    checks = _checks(dtypes)

    def parse(line: str) -> Row:
        data = json.loads(line)
        return tuple(check(data[name]) for name, check in checks)

    return parse


def _about(line: str) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in dict(json.loads(line)).items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"got {value!r}; expected a string")
    if not value.isascii():
        # JSON can spell half a surrogate pair, which no file can hold: it becomes U+FFFD.
        value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return sys.intern(value)  # most columns have a few texts, a million times each


def _time(value: object) -> float:
    seconds = float(value)  # type: ignore[arg-type]  # a TypeError is the answer
    if not 0 <= seconds < AT_MAX:
        raise ValueError(f"got {value!r}; expected Unix time in seconds")
    return seconds


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "int64": int,
    "float64": float,
    "bool": bool,
    "category": lambda value: Verdict(value).value,
    "object": lambda value: {_text(name): _text(text) for name, text in dict(value).items()},
    "datetime64[ns, UTC]": _time,
}


def _checks(dtypes: dict[str, Any]) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(name, _CHECKS[str(dtype)]) for name, dtype in dtypes.items()]


_RECORD_CHECKS = _checks(RECORD_DTYPES)


def _frame(rows: list[Row], dtypes: dict[str, Any]) -> pd.DataFrame:
    """A frame with exactly the declared columns and dtypes, also when there is no row."""
    frame = pd.DataFrame(rows, columns=list(dtypes))
    if "at" in dtypes:
        frame["at"] = pd.to_datetime(frame["at"], unit="s", utc=True)
    return frame.astype(dtypes)
