"""Runs one program on a GPU under NVIDIA's compute-sanitizer, which checks each access of each kernel.

Every tensor is then an allocation of its own: the caching allocator is off, and pools have no guards round them, which
would swallow what lands right behind a buffer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.finding import Finding
from fuzz.launch import WorkerOptions, environment
from fuzz.output import tail
from fuzz.process import START_SECONDS, WorkerError
from fuzz.program import Program
from fuzz.sanitizer_report import findings, is_complete
from fuzz.trace import Trace

TOOLS = ("memcheck",)  # the others look for races and leaks, which have no oracle here
PROGRAM = "compute-sanitizer"
FOUND = 86  # its exit status when it reports errors: none that a worker ends with
SLOWDOWN = 20  # of a program under memcheck: it patches each memory instruction
TAIL_BYTES = 2000


class SanitizerError(WorkerError):
    """There is no tool here to run anything under; one line that says so and what to do."""


class ToolFailure(RuntimeError):
    """One program was not run to its end under the tool: no GPU, a target that does not import, a tool that gave up."""


@dataclass(frozen=True, slots=True)
class Sanitized:
    """``trace`` is None where the process died before it was done; ``findings`` are what the tool reported."""

    trace: Trace | None
    findings: tuple[Finding, ...]


def find() -> str:
    """The tool's path. Raises SanitizerError where it is not installed."""
    path = shutil.which(PROGRAM)
    if path is None:
        raise SanitizerError(
            f"no {PROGRAM} on PATH; expected the one of the CUDA toolkit: add its bin folder to PATH, or replay without "
            "--sanitizer"
        )
    return path


def on_gpu(program: Program) -> Program:
    """The same program in a world whose device is a GPU."""
    return replace(program, world=replace(program.world, device="cuda"))


def run(program: Program, tool: str, options: WorkerOptions, program_seconds: float) -> Sanitized:
    """Run ``program`` once, in a worker of its own under the tool. Raises SanitizerError and ToolFailure."""
    options = replace(options, device="cuda", out=options.out.resolve())  # the worker starts in that folder
    requests, replies, report = (options.out / f"{PROGRAM}-{what}" for what in ("requests", "replies", "report"))
    for path in (replies, report):
        path.unlink(missing_ok=True)
    requests.write_text(json.dumps({"id": 1, "program": on_gpu(program).text}) + "\n")
    command = [find(), "--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "all"]
    # Errors of API calls are SGLang's and torch's probing of the machine; a launch may come minutes after the start.
    command += ["--report-api-errors", "no", "--launch-timeout", "0", "--log-file", str(report)]
    status = _wait(
        [*command, *options.command_on_files(requests, replies)], options, START_SECONDS + SLOWDOWN * program_seconds
    )
    answers = _answers(replies)
    if "cannot_start" in answers:
        raise ToolFailure(f"the worker cannot run the target: {answers['cannot_start']['message']}")
    trace = Trace.from_json(answers["trace"]["trace"]) if "trace" in answers else None
    text = report.read_text(errors="replace") if report.is_file() else ""
    found = findings(text, program, trace)
    if not found and (trace is None or not is_complete(text)):
        words = " ".join((text or tail(_log(options), 0, TAIL_BYTES)).split())[-400:]
        raise ToolFailure(f"{PROGRAM} failed with status {status}: {words or 'it said nothing'}")
    return Sanitized(trace, found)


def _log(options: WorkerOptions) -> Path:
    return options.out / f"{PROGRAM}.log"


def _wait(command: list[str], options: WorkerOptions, timeout_seconds: float) -> int:
    """Run it to its end; its exit status. It and its children are ended when time is up. Raises ToolFailure then."""
    surroundings = {**environment("cuda"), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with _log(options).open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=options.out,
            env=surroundings,
            start_new_session=True,
        )
        try:
            return process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise ToolFailure(f"{PROGRAM} was ended after {timeout_seconds:.0f} s without an answer") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _answers(path: Path) -> dict[str, dict[str, Any]]:
    """The worker's messages by kind; a line that was cut off is none."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        found[message["kind"]] = message
    return found
