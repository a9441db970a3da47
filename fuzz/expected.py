"""What each saved repro is expected to do on each release: read from and written to a TOML file beside the scripts.

A table a script, named as its file without ``.py``; a line a release: ``"0.5.16" = "bug 3/3"``. Only what is knowledge
is written: bug, other (another fault comes first), clean and unsupported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tomlkit
from tomlkit.exceptions import ParseError
from tomlkit.items import Table

from fuzz.comparison import CLEAN, Cell
from fuzz.program import ProgramError
from fuzz.store import write_whole

FILE = "expected.toml"  # beside the scripts
STATES = ("bug", "other", "clean", "unsupported")
_HEAD = (
    "What each script does on each release; `seamripper compare repros --targets ... --write-expected FILE` writes it."
)
_ENTRY = re.compile(r"(?P<state>[a-z]+)(?: (?P<k>\d+)/(?P<n>\d+))?(?: (?P<detail>\S.*))?")
_PASSED, _XFAILED, _SKIPPED, _FAILED, _ERROR = OUTCOMES = ("passed", "xfailed", "skipped", "failed", "error")


@dataclass(frozen=True, slots=True)
class Expected:
    """``state`` is one of STATES; ``detail`` is the signature of the other fault, else empty."""

    state: str
    k: int = 0
    n: int = 0
    detail: str = ""

    def __str__(self) -> str:
        score = f" {self.k}/{self.n}" if self.n else ""
        return f"{self.state}{score}" + (f" {self.detail}" if self.detail else "")

    @classmethod
    def parse(cls, text: str) -> Expected:
        match = _ENTRY.fullmatch(text)
        if match is None or match["state"] not in STATES:
            raise ValueError(f"{text!r}; expected one of {', '.join(STATES)}, then K/N, such as 'bug 3/3'")
        return cls(match["state"], int(match["k"] or 0), int(match["n"] or 0), match["detail"] or "")

    @classmethod
    def of(cls, cell: Cell) -> Expected | None:
        """What ``cell`` teaches; None where it teaches nothing: stub_gap, infra, unsure."""
        state = "clean" if cell.state in CLEAN else cell.state
        if state not in STATES:
            return None
        if state == "unsupported":
            return cls(state)
        return cls(state, cell.k, cell.n, cell.detail if state == "other" else "")


@dataclass(frozen=True, slots=True)
class Expectations:
    """Script name, without ``.py`` -> release -> what is expected there, in the order of the file."""

    by_script: Mapping[str, Mapping[str, Expected]] = field(default_factory=dict)

    def releases(self, script: str) -> tuple[str, ...]:
        return tuple(self.by_script.get(script, {}))

    def get(self, script: str, release: str) -> Expected | None:
        return self.by_script.get(script, {}).get(release)


def read_expected(path: Path) -> Expectations:
    """What the file says; nothing where there is none. Raises ProgramError, in one line that names it."""
    document = _document(path)
    by_script: dict[str, dict[str, Expected]] = {}
    for script, table in document.items():
        if not isinstance(table, Table):
            raise ProgramError(f"{path}: {script} is no table; expected one a script")
        for release, text in table.items():
            try:
                by_script.setdefault(script, {})[release] = Expected.parse(str(text))
            except ValueError as error:
                raise ProgramError(f"{path}: {script}, {release}: {error}") from None
    return Expectations(by_script)


def write_expected(path: Path, cells: Iterable[Cell]) -> None:
    """Note what ``cells`` showed, by the release that each ran on; the rest of the file, comments too, stays as it is.

    Raises ProgramError for a file that is none of ours, and StoreError.
    """
    read_expected(path)
    document = _document(path)
    for cell in cells:
        taught = Expected.of(cell)
        if taught is None or not cell.sglang_version:
            continue
        name = Path(cell.repro).stem
        if name not in document:
            document.add(name, tomlkit.table())
        table = document[name]
        assert isinstance(table, Table)
        table[cell.sglang_version] = str(taught)
    write_whole(path, tomlkit.dumps(document))


def judge(cell: Cell, expected: Expected | None) -> tuple[str, str]:
    """(one of OUTCOMES, why) of a run, set against what is expected; None: nothing is known of this release.

    What the harness could not do is an error, whatever is expected. Anything else that differs has failed, and a fault
    that no longer shows has, too: somebody mended it, or the repro is worth nothing any more.
    """
    seen = Expected.of(cell)
    where = f"{cell.target} (SGLang {cell.sglang_version})" if cell.sglang_version else cell.target
    if seen is None:
        return _ERROR, f"{cell.state} on {where}: {cell.detail}"
    if expected is None:
        return _unexpected(seen, cell, where)
    if (seen.state, seen.detail) == (expected.state, expected.detail):
        outcome = {"clean": _PASSED, "unsupported": _SKIPPED}.get(seen.state, _XFAILED)
        return outcome, f"{seen} on {where}, as expected" if outcome != _SKIPPED else cell.detail
    return _FAILED, f"{seen} on {where}; expected {expected}: {cell.detail}"


def _unexpected(seen: Expected, cell: Cell, where: str) -> tuple[str, str]:
    if seen.state == "clean":
        return _PASSED, f"clean on {where}"
    if seen.state == "unsupported":
        return _SKIPPED, cell.detail
    what = "shows" if seen.state == "bug" else f"another fault shows, {seen.detail},"
    return _FAILED, f"{what} on {where} in {cell.k} of {cell.n} runs, which is not known to have it"


def _document(path: Path) -> tomlkit.TOMLDocument:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        document = tomlkit.document()
        document.add(tomlkit.comment(_HEAD))
        return document
    except (OSError, UnicodeDecodeError) as error:
        raise ProgramError(f"{path} cannot be read ({error}); expected a TOML file") from None
    try:
        return tomlkit.parse(text)
    except ParseError as error:
        raise ProgramError(f"{path} is no TOML: {error}") from None
