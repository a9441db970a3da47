"""A list of known bugs of SGLang, read from TOML: where each is present, where fixed, what a finding of it says."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fuzz.targets import SCHEMES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RUN, AUDIT = "run", "audit"
OPTIONAL = ("by", "program")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"\d+(\.\w+)+")


class KnownBugsError(ValueError):
    """A list that cannot be used; one line that names the file, what was given and what was expected."""


@dataclass(frozen=True, slots=True)
class KnownBug:
    """``present`` and ``fixed`` are target specs; ``match`` is searched for in what a finding says.

    ``by`` tells who is asked for it: "run" a campaign, "audit" the reading of the source. ``program``, of a campaign's
    alone, is searched for in the text of the program that shows the finding: for a fault that says what others say, too,
    in other worlds.
    """

    id: str
    title: str
    reference: str
    present: str
    fixed: str
    match: str
    by: str = RUN
    program: str = ""

    def matches(self, text: str, program: str = "") -> bool:
        return re.search(self.match, text) is not None and re.search(self.program, program) is not None


def read_bugs(path: Path) -> tuple[KnownBug, ...]:
    """The bugs of the file, in its order. Raises KnownBugsError."""
    try:
        data = tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise KnownBugsError(f"{path} cannot be read ({error.strerror}); expected a TOML list of bugs") from None
    except ValueError as error:  # of TOML and of UTF-8 alike
        raise KnownBugsError(f"{path} is not TOML ({' '.join(str(error).split())}); expected [[bug]] tables") from None
    tables = data.get("bug")
    if set(data) != {"bug"} or not isinstance(tables, list) or not tables:
        raise KnownBugsError(f"{path} holds {', '.join(data) or 'nothing'}; expected [[bug]] tables and nothing else")
    bugs: list[KnownBug] = []
    for number, table in enumerate(tables, start=1):
        try:
            bugs.append(_bug(table))
            if any(bug.id == bugs[-1].id for bug in bugs[:-1]):
                raise KnownBugsError(f"id is {bugs[-1].id!r}, as an earlier one's; expected an id of its own")
        except KnownBugsError as error:
            raise KnownBugsError(f"{path}: bug {number}: {error}") from None
    return tuple(bugs)


def _bug(table: Any) -> KnownBug:
    names = [field.name for field in fields(KnownBug)]
    if not isinstance(table, Mapping):
        raise KnownBugsError(f"is {table!r}; expected a table with {', '.join(names)}")
    for name in table:
        if name not in names:
            raise KnownBugsError(f"has a field {name!r}; expected {', '.join(names)}")
    for name in names:
        if name not in table and name not in OPTIONAL:
            raise KnownBugsError(f"has no {name}; expected {', '.join(one for one in names if one not in OPTIONAL)}")
        if name in table and (not isinstance(table[name], str) or not table[name].strip()):
            raise KnownBugsError(f"{name} is {table[name]!r}; expected a text that is not empty")
    bug = KnownBug(**{**table, "present": _spec(table, "present"), "fixed": _spec(table, "fixed")})
    _check(bug)
    return bug


def _spec(table: Mapping[str, str], name: str) -> str:
    """A target's spec; a version alone means that release."""
    spec = table[name].strip()
    if _VERSION.fullmatch(spec):
        return f"pypi:{spec}"
    if spec != "installed" and spec.partition(":")[0] not in SCHEMES:
        raise KnownBugsError(f"{name} is {spec!r}; expected installed, pypi:VERSION, path:DIR or git:DIR@REV")
    return spec


def _check(bug: KnownBug) -> None:
    if not _ID.fullmatch(bug.id):
        raise KnownBugsError(
            f"id is {bug.id!r}; expected letters, digits, dots, hyphens and underscores: it names files"
        )
    if bug.by not in (RUN, AUDIT):
        raise KnownBugsError(f"by is {bug.by!r}; expected {RUN} or {AUDIT}")
    if bug.present == bug.fixed:
        raise KnownBugsError(f"present and fixed are both {bug.present!r}; expected two targets")
    if bug.by == AUDIT and bug.program:
        raise KnownBugsError(f"program is {bug.program!r}; expected none by {AUDIT}, which runs no program")
    for name in ("match", "program"):
        text = getattr(bug, name)
        try:
            re.compile(text)
        except re.error as error:
            raise KnownBugsError(f"{name} is {text!r}; expected a regular expression ({error})") from None
