"""The end of a worker in mid-program, as a finding: what killed it, where it was, and if that tells of SGLang."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from fuzz.finding import Finding, Signature, Verdict
from fuzz.place import innermost_in_dump
from fuzz.program import Program

# A process brings these on itself; any other signal (KILL, TERM, ...) was sent to it by somebody else.
_FAULTS = frozenset(
    (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS)
)
HANG, OUT_OF_MEMORY = "hang", "out_of_memory"
EVIDENCE_CHARS_MAX = 8000  # enough for a stack of 100 frames, the most that faulthandler writes


@dataclass(frozen=True, slots=True)
class Death:
    """``status`` is the exit status, negative for a signal, or None where the parent ended the process.

    That it did after a time without an answer, or, ``too_large``, because of the memory that the process had taken.
    ``dump`` is what faulthandler wrote ("" if nothing), ``log`` the end of the worker's output, ``op_index`` the op
    under way if that is known, ``memory_mb`` what the process had when last seen, ``out_of_memory`` whether the
    kernel's out-of-memory killer was at work meanwhile, ``harness`` whether our own code gave up.
    """

    status: int | None
    dump: str
    log: str
    seconds: float
    op_index: int | None = None
    memory_mb: int = 0
    too_large: bool = False
    out_of_memory: bool = False
    harness: bool = False

    @property
    def kind(self) -> str:
        if self.too_large or self.out_of_memory:
            return OUT_OF_MEMORY
        return HANG if self.status is None else cause(self.status)

    @property
    def verdict(self) -> Verdict:
        """bug where the target did it: it left, crashed or hung inside SGLang's code, or left no word of where it was.

        infra where somebody else sent the signal, or where the stack shows no SGLang frame at all.
        """
        sent = self.status is not None and self.status < 0 and -self.status not in _FAULTS
        elsewhere = self.dump != "" and innermost_in_dump(self.dump) == ""
        return Verdict.INFRA if self.harness or sent or elsewhere else Verdict.BUG

    @property
    def reason(self) -> str:
        if self.harness:
            return "the worker's own code failed; see its log"
        if self.too_large:
            return f"the process had {self.memory_mb} MB in memory, more than it may; the worker was ended"
        if self.status is None:
            return f"no answer after {self.seconds:.0f} s; the worker was ended"
        if self.status >= 0:
            return f"the process exited with status {self.status} in the middle of the program"
        text = f"the process was ended by {cause(self.status)} in the middle of the program"
        seen = f"; the machine ran out of memory (the process had {self.memory_mb} MB when last seen)"
        return text + seen if self.out_of_memory else text

    def finding(self, program: Program) -> Finding:
        """Of the op under way; where that is not known, of the last, for want of better."""
        place = innermost_in_dump(self.dump) or "process"
        oracle = "harness" if self.verdict is Verdict.INFRA else "contract"
        index = max(0, len(program.ops) - 1) if self.op_index is None else self.op_index
        unknown = "not known: the process died; the last op is named" if self.op_index is None else ""
        evidence = {"op": unknown, "stack": self.dump, "log": self.log}
        return Finding(
            verdict=self.verdict,
            signature=Signature(oracle, self.kind, place),
            title=f"{self.kind} at {place}",
            message=self.reason,
            op_index=index,
            mode="unknown" if self.op_index is None else program.ops[index].kind,
            evidence={name: text[-EVIDENCE_CHARS_MAX:] for name, text in evidence.items() if text},
        )


def cause(status: int) -> str:
    """An exit status in words: SIGSEGV for -11, exit_3 for 3."""
    if status >= 0:
        return f"exit_{status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal_{-status}"
