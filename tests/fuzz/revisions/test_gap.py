"""An audit's finding as a saved file: replayed and compared by reading, and kept from what runs programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fuzz import revisions
from fuzz.audit import AuditReport, Row, Wrapper
from fuzz.gap_script import save_gap
from fuzz.known import read_known
from fuzz.program import ProgramError
from fuzz.repro import NOTHING, read_program, read_repro
from fuzz.revisions import Rig, gap
from fuzz.revisions.cache import open_shelf
from fuzz.revisions.rig import silent
from tests.fuzz.conftest import MakeTarget

ROW = Row("Wrapper", "width", "missing", (), (), "crash", 0.9, "read without a guard: AttributeError", gap=True)
OTHERWISE = Row("Wrapper", "width", "shadowed", (), (), "wrong default", 0.9, "the default answers", gap=True)
BELOW = Row("Wrapper", "width", "missing", (), (), "crash", 0.1, "read without a guard: AttributeError", gap=False)
ELSEWHERE = Row("Wrapper", "height", "missing", (), (), "crash", 0.9, "read without a guard", gap=True)
WRAPPERS = (Wrapper("Wrapper", "sglang.srt.a", (), ()),)


class Audits:
    """What an audit of each toy release says, and how often each was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget) -> None:
        self._make_target = make_target
        self.reports: dict[Path, AuditReport] = {}
        self.read: list[Path] = []
        monkeypatch.setattr(gap, "audit", self._audit)

    def release(self, *rows: Row, wrappers: tuple[Wrapper, ...] = WRAPPERS) -> str:
        folder = self._make_target(name=f"release{len(self.reports)}")
        self.reports[folder] = AuditReport(rows, (), wrappers)
        return f"path:{folder}"

    def _audit(self, folder: Path) -> AuditReport:
        self.read.append(folder)
        return self.reports[folder]


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch, make_target: MakeTarget) -> Audits:
    return Audits(monkeypatch, make_target)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_gap(tmp_path / "repros", ROW, "pypi:0.5.16", "seamripper audit --target pypi:0.5.16")


def test_file_is_named_and_read_by_its_signature(saved: Path) -> None:
    repro = read_repro(saved)
    assert (str(repro.signature), repro.found_on, repro.program) == (
        "audit/missing/Wrapper.width",
        "pypi:0.5.16",
        NOTHING,
    )
    assert saved.stem == repro.signature.slug if repro.signature else False
    assert saved.read_text().splitlines()[0] == '"""Wrapper.width is missing: read without a guard: AttributeError'


@pytest.mark.parametrize(
    ("rows", "state", "exit_code"),
    [
        ((ELSEWHERE, ROW), "bug", 1),
        ((ELSEWHERE,), "clean", 0),
        ((BELOW,), "clean", 0),
        ((OTHERWISE,), "other", 125),
    ],
)
def test_replay_reads_the_release(
    audits: Audits, saved: Path, rows: tuple[Row, ...], state: str, exit_code: int
) -> None:
    result = revisions.replay(saved, audits.release(*rows), 3, Rig())
    assert (result.cell.state, result.cell.n, result.exit_code) == (state, 1, exit_code)


def test_a_release_without_the_wrapper_cannot_tell(audits: Audits, saved: Path) -> None:
    result = revisions.replay(saved, audits.release(wrappers=()), 1, Rig())
    assert (result.cell.state, result.cell.detail) == ("unsupported", "no wrapper Wrapper in this release")
    assert result.exit_code == 125


def test_a_folder_without_sglang_is_infra(monkeypatch: pytest.MonkeyPatch, audits: Audits, saved: Path) -> None:
    def missing(folder: Path) -> AuditReport:
        raise FileNotFoundError(f"{folder} holds no sglang")

    target = audits.release(ROW)
    monkeypatch.setattr(gap, "audit", missing)
    result = revisions.replay(saved, target, 1, Rig())
    assert (result.cell.state, result.cell.detail) == ("infra", f"{target.removeprefix('path:')} holds no sglang")


def test_compare_says_where_it_came_and_went(audits: Audits, saved: Path) -> None:
    targets = [audits.release(), audits.release(ROW), audits.release()]
    (row,) = revisions.compare([saved], targets, 3, Rig()).rows
    assert [(cell.state, cell.k, cell.n) for cell in row.cells] == [("clean", 0, 1), ("bug", 1, 1), ("fixed", 0, 1)]


def test_a_release_is_read_once_for_all_gaps(audits: Audits, saved: Path) -> None:
    other = save_gap(saved.parent, ELSEWHERE, "pypi:0.5.16", "audit")
    target = audits.release(ROW)
    results: Mapping[Path, str] = {
        result.path: result.cell.state for result in revisions.replay_all([saved, other], target, 1, Rig())
    }
    assert results == {saved: "bug", other: "clean"}
    assert len(audits.read) == 1


def test_what_was_read_is_kept(audits: Audits, saved: Path, tmp_path: Path) -> None:
    rig = Rig(results=tmp_path / "results")
    target = audits.release(ROW)
    for _ in range(2):
        (row,) = revisions.compare([saved], [target], 3, rig).rows
        assert row.cells[0].state == "bug"
    assert len(audits.read) == 1
    shelf = open_shelf(target, "cpu", rig, silent)
    assert shelf is not None
    kept = shelf.get(read_repro(saved))
    assert kept is not None
    assert kept.sample.state == "bug"


def test_it_has_no_program_to_shrink(saved: Path) -> None:
    line = f"{saved} is an audit's finding and has no program; `replay`, `compare` and `bisect` take it"
    with pytest.raises(ProgramError) as caught:
        revisions.shrink_path(saved, "pypi:0.5.16", Rig())
    assert str(caught.value) == line
    with pytest.raises(ProgramError) as caught:
        read_program(saved)
    assert str(caught.value) == line


def test_a_campaign_leaves_it_out_of_what_it_knows(saved: Path) -> None:
    text = saved.read_text()
    saved.write_text(text.replace("Found by:", "Known: PR #1.\nFound by:"))
    assert read_known(saved.parent) == {}
    saved.write_text(text)
    with pytest.raises(ProgramError, match="does not say why it is known"):
        read_known(saved.parent)
