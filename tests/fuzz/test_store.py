"""The out folder: what was written stays written, and what was under way is not forgotten."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import store as store_module
from fuzz.record import Record
from fuzz.sealed import unsealed
from fuzz.store import Store, StoreError, append, write_whole

RECORD = Record(
    at=1.0,
    elapsed_seconds=2.0,
    seed=7,
    program="abcd",
    ops=1,
    verdict="infra",
    signature="harness/not_run/worker",
    title="not run to its end",
    reason="the campaign ended while this program ran",
    seconds=0.0,
    steps=(),
    target="installed",
    sglang_version="9.1",
    device="cpu",
    runner="fake",
    prefill="triton",
    decode="torch_native",
    engine="random",
    worker=0,
)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_end_writes_the_record_and_empties_the_journal(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    store.begin(RECORD, "text")
    assert json.loads((tmp_path / "out" / "journal-0.json").read_text())["program"] == "text"
    store.end(replace(RECORD, verdict="ok"))
    assert (tmp_path / "out" / "journal-0.json").read_text() == ""
    store.close()
    assert not (tmp_path / "out" / "journal-0.json").exists()
    (line,) = lines(tmp_path / "out" / "records-0.jsonl")
    assert json.loads(line)["verdict"] == "ok"


def test_half_a_line_left_by_a_kill_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "records-0.jsonl").write_text('{"whole": 1}\n{"ha')
    Store(tmp_path).end(RECORD)
    assert lines(tmp_path / "records-0.jsonl") == ['{"whole": 1}', RECORD.to_line()]


def test_one_campaign_at_a_time(tmp_path: Path) -> None:
    first = Store(tmp_path)
    with pytest.raises(StoreError, match="another campaign is writing to"):
        Store(tmp_path)
    first.close()
    Store(tmp_path).close()


def test_full_disk_is_loud_and_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.end(RECORD)
    real_write = os.write

    def short_then_full(fd: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(fd, data[:-50])

    monkeypatch.setattr(store_module.os, "write", short_then_full)
    with pytest.raises(StoreError, match=r"cannot write .*records-0.jsonl: No space left on device; make room"):
        store.end(RECORD)
    monkeypatch.undo()
    assert lines(tmp_path / "records-0.jsonl") == [RECORD.to_line()]


def test_journal_stays_when_the_record_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.begin(RECORD, "text")

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module.os, "write", full)
    with pytest.raises(StoreError):
        store.end(RECORD)
    assert json.loads((tmp_path / "journal-0.json").read_text())["program"] == "text"


def test_failed_whole_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "repro.py"
    write_whole(path, "old")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module.os, "fsync", full)
    with pytest.raises(StoreError, match=r"cannot write .*repro.py: No space left on device"):
        write_whole(path, "new", durable=True)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["repro.py"]


def test_findings_are_written_anew_and_sealed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_findings([{"signature": "a/b/c", "count": 1}])
    store.write_findings([{"signature": "a/b/c", "count": 2}, {"signature": "d/e/f", "count": 1}])
    entries = [unsealed(line) for line in lines(tmp_path / "findings.jsonl")]
    assert [(entry["signature"], entry["count"]) for entry in entries] == [("a/b/c", 2), ("d/e/f", 1)]


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write .*file/out: Not a directory"):
        Store(tmp_path / "file" / "out")


def test_lines_are_added_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append(path, ["one", "two"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(StoreError, match="cannot write .*lines: File too large"):
            append(path, ["three", "four"])
    finally:
        signal.signal(signal.SIGXFSZ, ignored)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert lines(path) == ["one", "two"]
