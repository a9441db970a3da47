"""Which names SGLang's callers read off an attention backend, and what each wrapper of the release answers.

Source only: nothing of SGLang is imported. It checks wrappers (backends whose constructor is handed other backends)
for names they lack or leave at the base default while a backend below answers them, for calls whose shapes do not fit,
for methods defined twice and for flags taken from the child that does not serve the mode. It does not check what a
forwarded method computes.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

from fuzz.audit.answers import Answers
from fuzz.audit.checklist import checklist, describe
from fuzz.audit.checks import CHECKS
from fuzz.audit.classes import Classes
from fuzz.audit.nesting import Nesting
from fuzz.audit.receivers import Readers
from fuzz.audit.rows import AuditReport, Check, Reader, Row, Wrapper
from fuzz.audit.source import Source
from fuzz.audit.written_test import write_test

__all__ = ["AuditReport", "Check", "Reader", "Row", "Wrapper", "audit", "write_test"]


def audit(folder: Path, wrappers: Sequence[str] = ()) -> AuditReport:
    """Audits the release in `folder`, which holds `sglang/`.

    `wrappers` limits the rows to wrapper classes of these names. Raises FileNotFoundError where there is no SGLang and
    ValueError where the release has no wrapper of a name given.
    """
    collecting = gc.isenabled()
    gc.disable()  # hundreds of thousands of tree nodes, none of them garbage: collecting doubles the time
    try:
        return _audit(folder, wrappers)
    finally:
        if collecting:
            gc.enable()


def _audit(folder: Path, wanted: Sequence[str]) -> AuditReport:
    source = Source(folder)
    classes = Classes(source)
    nesting = Nesting(source, classes)
    keys = _wanted(classes, wanted)
    answers = Answers(classes, nesting, Readers(source, classes, nesting).collect())
    rows = [row for key in keys for check in CHECKS for row in check(answers, key)]
    return AuditReport(
        rows=tuple(sorted(rows, key=lambda r: (-r.score, r.wrapper, r.name, r.answer))),
        checks=tuple(check for key in keys for check in checklist(answers, key, asked_for=bool(wanted))),
        wrappers=tuple(describe(answers, key) for key in keys),
    )


def _wanted(classes: Classes, names: Sequence[str]) -> list[str]:
    known = {classes[k].name: k for k in classes.wrappers}
    unknown = [n for n in names if n not in known]
    if unknown:
        raise ValueError(f"no wrapper named {', '.join(unknown)} in this release; it has {', '.join(sorted(known))}")
    return [known[n] for n in names] if names else list(classes.wrappers)
