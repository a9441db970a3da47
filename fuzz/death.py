"""The end of a worker in mid-program, as a finding: what killed it, where it was, and whether that says anything of SGLang."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from fuzz.finding import Finding, Signature, Verdict
from fuzz.place import innermost_in_dump
from fuzz.program import Program

# A process brings these on itself; any other signal (KILL, TERM, ...) was sent to it by somebody else.
_FAULTS = frozenset(
    (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS)
)
_CGROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")
HANG = "hang"
EVIDENCE_CHARS_MAX = 8000  # enough for a stack of 100 frames, the most that faulthandler writes


@dataclass(frozen=True, slots=True)
class Death:
    """``status`` is the exit status, negative for a signal, or None for a hang that the parent ended.

    ``dump`` is what faulthandler wrote ("" if nothing), ``log`` the end of the worker's output, ``out_of_memory``
    whether the kernel's out-of-memory killer was at work meanwhile, ``harness`` whether our own code gave up.
    """

    status: int | None
    dump: str
    log: str
    seconds: float
    out_of_memory: bool = False
    harness: bool = False

    @property
    def kind(self) -> str:
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
        if self.status is None:
            return f"no answer after {self.seconds:.0f} s; the worker was ended"
        if self.status >= 0:
            return f"the process exited with status {self.status} in the middle of the program"
        text = f"the process was ended by {cause(self.status)} in the middle of the program"
        return f"{text}; the machine ran out of memory" if self.out_of_memory else text

    def finding(self, program: Program) -> Finding:
        """``op_index`` is the last op, for want of better: where a process died inside a program is not known."""
        place = innermost_in_dump(self.dump) or "process"
        oracle = "harness" if self.verdict is Verdict.INFRA else "contract"
        evidence = {"op": "not known: the process died; the last op is named", "stack": self.dump, "log": self.log}
        return Finding(
            verdict=self.verdict,
            signature=Signature(oracle, self.kind, place),
            title=f"{self.kind} at {place}",
            message=self.reason,
            op_index=max(0, len(program.ops) - 1),
            mode="unknown",
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


def out_of_memory_kills() -> int:
    """How often the kernel's out-of-memory killer struck in this control group; 0 where that cannot be read."""
    try:
        lines = _CGROUP_EVENTS.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
