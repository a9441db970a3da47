"""Reads what compute-sanitizer's memcheck printed: each faulty access of a kernel, as a finding.

Source of the format: NVIDIA's Compute Sanitizer documentation, "Memcheck Tool"; kernels are told apart from device
functions, and a location is read as each version spells it (``kernel+0x30``, ``kernel():0x30 in a.cu:6``,
``0x30 in a.cu:6:kernel()``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from fuzz.finding import CUDA_FAULT, Finding, Signature, Verdict
from fuzz.program import Program
from fuzz.trace import Trace

EXCERPT_LINES_MAX = 40  # a host backtrace goes through some hundred frames of the interpreter
HOST_FRAMES_MAX = 8

_LINE = re.compile(r"^=========( ?)(?P<text>.*)$")
_HEAD = re.compile(r"Invalid __(?P<space>\w+)__ (?P<access>\w+) of size (?P<size>\d+)")
_AT = re.compile(r"at (?P<where>.+?)(:0x[0-9a-f]+|\+0x[0-9a-f]+)( in (?P<source>.+))?$")
_AT_OLDER = re.compile(r"at 0x[0-9a-f]+ in ((?P<source>\S+:\d+):)?(?P<where>.+)$")
_DEVICE_FRAME = re.compile(
    r"Device Frame:\s*(\S+:\d+:)?(?P<where>.+?)(:0x[0-9a-f]+| \[0x[0-9a-f]+\]|\+0x[0-9a-f]+)( in .+)?$"
)
_THREAD = re.compile(r"by thread (?P<thread>\([\d,]+\)) in block (?P<block>\([\d,]+\))")
_ADDRESS = re.compile(r"Address (?P<address>0x[0-9a-f]+) (?P<what>.+)$")
_NEAREST = re.compile(r"and is (?P<where>.+)$")
_HOST_FRAME = re.compile(r"Host Frame:\s*(?P<frame>.+)$")
_SUMMARY = re.compile(r"^========= ERROR SUMMARY: (?P<errors>\d+) error", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Access:
    """One faulty access. ``space`` is global, shared or local; ``access`` read, write or atomic; ``size`` in bytes.

    ``kernel`` is the kernel's bare name; ``source`` the line at fault, ``nearest`` which allocation it missed and by
    how far, each "" where the report has none. ``excerpt`` is the report's own text, its tail cut.
    """

    space: str
    access: str
    size: int
    kernel: str
    source: str
    thread: str
    block: str
    address: str
    what: str
    nearest: str
    host_frames: tuple[str, ...]
    excerpt: str

    @property
    def kind(self) -> str:
        """``sanitizer_invalid_write``; the space is named if it is not global memory, misalignment if it is that."""
        fault = "misaligned" if "misaligned" in self.what else "invalid"
        space = "" if self.space == "global" else f"{self.space}_"
        return f"sanitizer_{fault}_{space}{self.access}"

    @property
    def message(self) -> str:
        place = ", ".join(part for part in (f"{self.address} {self.what}", self.nearest) if part)
        return f"{self.access} of {self.size} bytes at {place}; thread {self.thread} of block {self.block}"


def is_complete(report: str) -> bool:
    """Whether the tool got to its end: without a summary, no errors does not mean that there are none."""
    return _SUMMARY.search(report) is not None


def accesses(report: str) -> list[Access]:
    """Every faulty access in a report, in its order."""
    return [_access(block) for block in _blocks(report)]


def findings(report: str, program: Program, trace: Trace | None) -> tuple[Finding, ...]:
    """One bug per kind and kernel. The report does not say of which step it is: the trace may, if it was the last."""
    seen = accesses(report)
    counts = Counter((access.kind, access.kernel) for access in seen)
    op_index, mode = _step(program, trace)
    found: dict[Signature, Finding] = {}
    for access in seen:
        signature = Signature("bounds", access.kind, access.kernel)
        evidence = {
            "sanitizer": access.excerpt,
            "address": access.address,
            "thread": f"{access.thread} of block {access.block}",
            "reports": str(counts[access.kind, access.kernel]),
            "host_frames": "\n".join(access.host_frames[:HOST_FRAMES_MAX]),
            "line": access.source,
        }
        evidence = {name: text for name, text in evidence.items() if text}
        what = access.kind.removeprefix("sanitizer_").replace("_", " ")
        title = f"{access.kernel}: {what} of {access.size} bytes, says compute-sanitizer"
        found.setdefault(signature, Finding(Verdict.BUG, signature, title, access.message, op_index, mode, evidence))
    return tuple(found.values())


def bare_name(kernel: str) -> str:
    """``void at::native::fill<4, Functor<float>>(int, char*)`` -> ``at::native::fill``."""
    text = kernel.replace("(anonymous namespace)::", "").replace("<unnamed>::", "").strip()
    kept, depth = [], 0
    for letter in text:
        depth += letter in "<("
        if not depth:
            kept.append(letter)
        depth -= letter in ">)" and depth > 0
    words = "".join(kept).split()
    return words[-1] if words else text


def _step(program: Program, trace: Trace | None) -> tuple[int, str]:
    """The step at which the device broke, if it did; else the last op, for want of better."""
    for finding in trace.findings if trace is not None else ():
        if finding.signature.kind == CUDA_FAULT:
            return finding.op_index, finding.mode
    return max(0, len(program.ops) - 1), "unknown"


def _blocks(report: str) -> Iterator[list[str]]:
    """The lines of each error, its head first. An error ends at an empty line or at one that is not indented."""
    block: list[str] = []
    for line in report.splitlines():
        match = _LINE.match(line)
        if match is None:  # the target's own output, where the report is not in a file of its own
            continue
        text = match["text"]
        if text.startswith("  ") and text.strip():
            if block:
                block.append(text)
            continue
        if block:
            yield block
        block = [text] if _HEAD.match(text) else []
    if block:
        yield block


def _access(block: list[str]) -> Access:
    head = _HEAD.match(block[0])
    assert head is not None, "a block begins with its head"
    fields = {"where": "", "source": "", "thread": "?", "block": "?", "address": "an unknown address", "what": ""}
    nearest, kernel = "", ""
    frames: list[str] = []
    for line in (line.strip() for line in block[1:]):
        if frame := _HOST_FRAME.match(line):
            frames.append(frame["frame"])
        elif device := _DEVICE_FRAME.match(line):
            kernel = device["where"]  # the last one is the kernel that called the function at fault
        elif near := _NEAREST.match(line):
            nearest = near["where"]
        else:
            match = _AT_OLDER.match(line) or _AT.match(line) or _THREAD.match(line) or _ADDRESS.match(line)
            fields.update({name: value or "" for name, value in match.groupdict().items()} if match else {})
    where = fields.pop("where")
    excerpt = [f"========= {line}" for line in block[:EXCERPT_LINES_MAX]]
    return Access(
        space=head["space"],
        access=head["access"],
        size=int(head["size"]),
        kernel=bare_name(kernel or where) or "unknown",
        nearest=nearest,
        host_frames=tuple(frames),
        excerpt="\n".join(excerpt),
        **fields,
    )
