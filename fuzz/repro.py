"""Reads a saved program: a program file, or the constants of a repro script, which is parsed and never run."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from fuzz.finding import Signature
from fuzz.ledger import check
from fuzz.program import Program, ProgramError, parse
from stubs.world import World

FILE_BYTES_MAX = 1 << 20  # one MiB; a script has some ten KiB
RUNS_MAX = 1000  # of those that a script says it was shown in; nobody has made more
_RELIABILITY = re.compile(r"^Found on .*; shown in (\d{1,4}) of (\d{1,4}) runs\b", re.MULTILINE)
AUDIT = "audit"  # the oracle that reads
NOTHING = Program(World(), ())
_CONSTANTS = ("PROGRAM", "SIGNATURE", "FOUND_ON")


@dataclass(frozen=True, slots=True)
class Repro:
    """``signature`` and ``found_on`` (a target) are None where the file does not name them.

    ``shown`` of ``runs`` runs showed it when it was saved, both 0 where the file does not say. What an audit found is
    read off SGLang's source and never run: its program is ``NOTHING``. ``title`` is what the file says first of all.
    """

    program: Program
    signature: Signature | None = None
    found_on: str | None = None
    shown: int = 0
    runs: int = 0
    title: str = ""

    @property
    def is_gap(self) -> bool:
        """Whether it is an audit's finding."""
        return self.signature is not None and self.signature.oracle == AUDIT


def read_repro(path: Path) -> Repro:
    """Read ``path``; ProgramError says what is wrong with it in one line that names it."""
    try:
        return _read(path)
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from None


def read_program(path: Path) -> tuple[Program, Signature | None]:
    """The program and, where the file names it, the signature it shows. ProgramError, too, where it is not run."""
    repro = read_repro(path)
    if repro.is_gap:
        raise ProgramError(f"{path} is an audit's finding and has no program; `replay`, `compare` and `bisect` take it")
    return repro.program, repro.signature


def repros_in(path: Path) -> list[Path]:
    """``path`` itself, or the scripts in that folder, by name. ProgramError if there is no such path."""
    if path.is_dir():
        return sorted(path.glob("*.py"))
    if not path.exists():
        raise ProgramError(f"{path} does not exist; expected a repro script, a program file or a folder of scripts")
    return [path]


def _read(path: Path) -> Repro:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ProgramError(f"cannot be read ({error.strerror}); expected a repro script or a program file") from None
    if len(data) > FILE_BYTES_MAX:
        raise ProgramError(f"has more than {FILE_BYTES_MAX} bytes, the limit for a repro or program file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ProgramError("is not UTF-8 text; expected a repro script or a program file") from None
    constants = _constants(text) if path.suffix == ".py" else {"PROGRAM": text}
    signature = constants.get("SIGNATURE")
    named = _signature(signature) if signature else None
    is_gap = named is not None and named.oracle == AUDIT
    if "PROGRAM" not in constants and not is_gap:
        raise ProgramError("has no constant PROGRAM; expected a repro script that seamripper wrote")
    program = NOTHING if is_gap else parse(constants["PROGRAM"])
    check(program)
    title = constants.get("__doc__", "").partition("\n")[0]
    return Repro(program, named, constants.get("FOUND_ON") or None, *_reliability(text), title)


def _constants(source: str) -> dict[str, str]:
    """The docstring, and the string constants that the script assigns at module level; nothing is evaluated but literals."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(f"is not Python ({error})") from None
    found = {"__doc__": ast.get_docstring(module) or ""}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        if isinstance(target, ast.Name) and target.id in _CONSTANTS:
            found[target.id] = _string(target.id, value)
    return found


def _reliability(text: str) -> tuple[int, int]:
    """What the docstring says of it; a script never says that it showed in more runs than there were."""
    found = _RELIABILITY.search(text)
    shown, runs = map(int, found.groups()) if found else (0, 0)
    return (shown, runs) if shown <= runs <= RUNS_MAX else (0, 0)


def _string(name: str, node: ast.expr) -> str:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = None
    if not isinstance(value, str):
        raise ProgramError(f"line {node.lineno}: {name} is no plain string; expected one, as seamripper writes it")
    return value


def _signature(text: str) -> Signature:
    try:
        return Signature.parse(text)
    except ValueError:
        raise ProgramError(f"SIGNATURE is {text!r}; expected ORACLE/KIND/PLACE") from None
