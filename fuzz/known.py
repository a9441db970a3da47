"""Faults that somebody has looked at already: repro files, each with an issue's address or a reason in its docstring.

The line ``Known: https://github.com/.../issues/1`` or ``Known: fixed in 0.5.17`` is added by hand to a script that
`seamripper run` saved.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fuzz.order import CampaignError, CampaignOptions
from fuzz.program import Program, ProgramError
from fuzz.repro import read_repro, repros_in

_LINE = re.compile(r"^Known:[ \t]*(?P<reason>\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Known:
    """One known fault. ``reason`` is an issue's address, or why nobody needs to be told of it again."""

    path: Path
    signature: str
    program: Program
    reason: str


def read_known(folder: Path) -> Mapping[str, Known]:
    """The scripts of ``folder`` by signature. ProgramError, in one line, for one without a reason or a signature.

    What an audit found, no campaign comes upon: it is left out.
    """
    if not folder.is_dir():
        raise ProgramError(f"{folder} is no folder; expected one that holds repro scripts")
    known = [_read(path) for path in repros_in(folder)]
    return {one.signature: one for one in known if one is not None}


def known_of(options: CampaignOptions) -> Mapping[str, Known]:
    """Those of a campaign, none where it is given no folder. Raises CampaignError."""
    if options.known is None:
        return {}
    try:
        return read_known(options.known)
    except ProgramError as error:
        raise CampaignError(f"known: {error}") from None


def _read(path: Path) -> Known | None:
    repro = read_repro(path)
    if repro.signature is None:
        raise ProgramError(f"{path} names no SIGNATURE; expected a repro script that `seamripper run` saved")
    # It has been read and parsed a moment ago.
    reason = _LINE.search(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
    if reason is None:
        raise ProgramError(
            f"{path} does not say why it is known; expected a line `Known: ADDRESS OF THE ISSUE, OR A REASON` in its docstring"
        )
    if repro.is_gap:
        return None
    return Known(path, str(repro.signature), repro.program, reason["reason"].strip().rstrip("."))
