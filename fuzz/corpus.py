"""A folder of programs that each showed something new, one file each, named by its content; any number may share it.

A file is written whole or not at all and never changed, so a reader finds all of it or nothing. What is not what its
name says, or no program, is set aside as ``<name>.broken`` with a line. Its first line says what the program showed,
and on which SGLang; the rest is the program's text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fuzz.ledger import check
from fuzz.program import Program, ProgramError, parse
from fuzz.salvage import Tell
from fuzz.store import make_folder, write_whole
from stubs.world import WorldError

SUFFIX = ".program"
CORPUS_VERSION = 1
HEX_DIGITS = 32  # of a file's SHA-256
FEATURE_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """``features`` are numbers of what ``program`` showed on SGLang ``version`` (see ``fuzz.features``)."""

    program: Program
    features: frozenset[int]
    version: str

    @property
    def text(self) -> str:
        about = {
            "seamripper_corpus": CORPUS_VERSION,
            "sglang_version": self.version,
            "features": sorted(self.features),
        }
        return json.dumps(about, separators=(",", ":")) + "\n" + self.program.text

    @property
    def name(self) -> str:
        return _name(self.text.encode())


class Corpus:
    """The files of ``folder``, which is made where it is missing. Raises StoreError where it cannot be written."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        make_folder(folder)
        self.folder, self._tell = folder, tell
        self._seen: set[str] = set()  # names of files that have been read, written or set aside

    def add(self, entry: Entry) -> bool:
        """Write the entry unless it is there; whether it was not. Raises StoreError."""
        path = self.folder / entry.name
        self._seen.add(path.name)
        if path.exists():
            return False
        write_whole(path, entry.text)
        return True

    def fresh(self) -> list[Entry]:
        """What stands in the folder and has not been read or written here yet, by name."""
        names = {path.name for path in self.folder.glob(f"*{SUFFIX}") if not path.name.startswith(".")}
        entries = [self._read(self.folder / name) for name in sorted(names - self._seen)]
        self._seen |= names
        return [entry for entry in entries if entry is not None]

    def _read(self, path: Path) -> Entry | None:
        try:
            data = path.read_bytes()
            return entry_of(data, path.name)
        except FileNotFoundError:
            return None  # pruned, or set aside, by another process meanwhile
        except (ValueError, OSError) as error:
            aside = path.with_name(f"{path.name}.broken")
            self._tell(f"{path}: {error}; set aside as {aside.name}")
            try:
                path.replace(aside)
            except FileNotFoundError:
                pass  # another process was quicker
            except OSError as failed:
                self._tell(f"{path}: cannot be set aside ({failed.strerror}); passed over")
            return None


def size(folder: Path) -> int:
    """How many programs stand in ``folder``, unread; 0 where there is none."""
    return sum(1 for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith("."))


def entry_of(data: bytes, name: str) -> Entry:
    """What a file of this name holds. Raises ValueError, which says why it is no entry."""
    if _name(data) != name:
        raise ValueError("does not hold what its name says")
    first, _, rest = data.decode().partition("\n")
    about = json.loads(first)
    if not isinstance(about, dict) or about.get("seamripper_corpus") != CORPUS_VERSION:
        raise ValueError(f'expected a first line with "seamripper_corpus": {CORPUS_VERSION}')
    version, features = about.get("sglang_version"), about.get("features")
    if not isinstance(version, str) or not isinstance(features, list) or not all(map(_is_feature, features)):
        raise ValueError("expected sglang_version, a text, and features, whole numbers of 32 bits")
    program = parse(rest)
    try:
        check(program)
    except WorldError as error:
        raise ProgramError(str(error)) from None
    return Entry(program, frozenset(features), version)


def merge(sources: Iterable[Path], into: Path, tell: Tell) -> int:
    """Put what stands in the sources into one folder, which may be one of them; how many were new there."""
    corpus = Corpus(into, tell)
    corpus.fresh()
    return sum(corpus.add(entry) for source in sources for entry in Corpus(source, tell).fresh())


def prune(folder: Path, tell: Tell) -> tuple[int, int]:
    """Remove what shows nothing that others do not; how many were kept and how many went. Raises StoreError."""
    entries = Corpus(folder, tell).fresh()
    kept = {entry.name for entry in smallest(entries)}
    for entry in entries:
        if entry.name not in kept:
            (folder / entry.name).unlink(missing_ok=True)
    return len(kept), len(entries) - len(kept)


def smallest(entries: Iterable[Entry]) -> list[Entry]:
    """A set with the same features, on each SGLang, of which none can be left out.

    Greedily: what shows most that is new, of equals the simplest program, comes next; at last each that turns out to be
    needless goes, costly ones first. The very smallest set would take time without bound.
    """
    left = {entry.name: entry for entry in entries}
    wanted = {name: {(entry.version, feature) for feature in entry.features} for name, entry in left.items()}
    order = sorted(left, key=lambda name: (left[name].program.cost, name))
    missing = {name: set(features) for name, features in wanted.items()}
    kept: list[str] = []
    while order:
        best = max(order, key=lambda name: len(missing[name]))  # the first of equals, which is the simplest
        covered = set(missing[best])
        if not covered:
            break
        kept.append(best)
        order.remove(best)
        for name in order:
            missing[name] -= covered
    return [left[name] for name in _without_needless(kept, wanted, left)]


def _without_needless(kept: list[str], wanted: dict[str, set[tuple[str, int]]], entries: dict[str, Entry]) -> list[str]:
    times: dict[tuple[str, int], int] = {}
    for name in kept:
        for feature in wanted[name]:
            times[feature] = times.get(feature, 0) + 1
    for name in sorted(kept, key=lambda name: entries[name].program.cost, reverse=True):
        if all(times[feature] > 1 for feature in wanted[name]):
            kept = [other for other in kept if other != name]
            for feature in wanted[name]:
                times[feature] -= 1
    return kept


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:HEX_DIGITS] + SUFFIX


def _is_feature(value: object) -> bool:
    return type(value) is int and 0 <= value <= FEATURE_MAX
