"""The child process that holds one target: programs come in and traces go out over pipes the target cannot print on.

The process started by ``fuzz.process`` imports the target once and then stays as it is. It forks a session, which runs
programs until it dies or is told to make room for a fresh one; so a crash, or a run that must not see what ran before,
costs a fork and not an import. With a GPU there is no fork (CUDA does not survive one) and the process is the session.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from fuzz import slot
from fuzz.finding import Finding, Signature, Verdict
from fuzz.place import innermost
from fuzz.program import Program, parse
from fuzz.trace import Trace

EXECUTOR = "fuzz.execute"
# A session's exit status when it makes room for a fresh one, when its parent has gone, and when the
# harness itself failed. From 200 on, so that no exit status a target is likely to choose is taken for one of them.
EXIT_FRESH = 201
EXIT_ORPHANED = 202
EXIT_OUR_FAULT = 203
# What may be asked of the executor besides running a program.
PAIRS, SPECULATIVE = "pairs", "speculative"
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


class Executor(Protocol):
    """What ``--executor`` names: a module with these functions."""

    def prepare(self) -> str:
        """Import the target; its version."""
        ...

    def available_pairs(self) -> dict[str, str]:
        """PREFILL:DECODE -> "" or the reason why it cannot run here."""
        ...

    def speculative_modes(self, pairs: Sequence[str]) -> dict[str, dict[str, int]]:
        """For each pair the speculative modes it verifies in, each with the most draft steps."""
        ...

    def execute(self, program: Program) -> Trace: ...


class Pipes:
    """The two ends this process holds."""

    def __init__(self, request_fd: int, reply_fd: int) -> None:
        self.request_fd, self.reply_fd = request_fd, reply_fd
        self._unread = b""

    def receive(self) -> dict[str, Any] | None:
        """The next request, or None when the parent has closed its end."""
        while b"\n" not in self._unread:
            chunk = os.read(self.request_fd, 1 << 16)
            if not chunk:
                return None
            self._unread += chunk
        line, self._unread = self._unread.split(b"\n", 1)
        request: dict[str, Any] = json.loads(line)
        return request

    def send(self, kind: str, **fields: Any) -> None:
        """One line. It begins with a newline of its own, which ends what a dead session left half-written."""
        data = b"\n" + json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self.reply_fd, data) :]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    stack_fd = _settle(options.fault_file)
    if options.slot_file:
        slot.watch_in(Path(options.slot_file))
    pipes = _pipes(options)
    started = time.monotonic()
    try:
        executor, version = _load(options.executor, options.folder, options.device)
    except BaseException as error:  # noqa: BLE001 - the import of a foreign package may fail in any way; it is reported
        traceback.print_exc()
        pipes.send("cannot_start", message=_one_line(error))
        return 1
    about = {"sglang_version": version, "import_seconds": time.monotonic() - started}
    if options.request_file:
        _session(pipes, executor, about, stack_fd)
        return 0
    if options.device == "cuda":
        return _session(pipes, executor, about, stack_fd)
    return _sessions(pipes, executor, about, stack_fd)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fuzz.worker", description=__doc__)
    parser.add_argument("--request-fd", type=int)
    parser.add_argument("--reply-fd", type=int)
    parser.add_argument("--request-file", help="instead of pipes: the requests, all of them; the worker ends with them")
    parser.add_argument("--reply-file", help="where the answers to them go")
    parser.add_argument("--fault-file", required=True, help="where Python writes its stack when it crashes or hangs")
    parser.add_argument("--slot-file", default="", help="where it notes how far a program has come")
    parser.add_argument("--folder", default="", help="folder that holds sglang/; empty: the installed one")
    parser.add_argument("--executor", default=EXECUTOR)
    parser.add_argument("--device", default="cpu")
    return parser


def _settle(fault_file: str) -> int:
    """Ctrl-C is the parent's affair, and a crash leaves a stack and no core file. Returns the fd that stacks go to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    stack = os.open(fault_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    _tell_stacks(stack)
    return stack


def _tell_stacks(stack_fd: int) -> None:
    """Write the stack on a crash and on SIGUSR1. Again before each program: packages that the target imports put
    handlers of their own in the way, which write elsewhere (apache-tvm-ffi, that xgrammar brings, is one)."""
    faulthandler.disable()
    faulthandler.enable(file=stack_fd)
    faulthandler.unregister(signal.SIGUSR1)
    faulthandler.register(signal.SIGUSR1, file=stack_fd)


def _pipes(options: argparse.Namespace) -> Pipes:
    """The parent's pipes, with whom this process ends; or files, for a worker that runs under another program."""
    if options.request_file:
        return Pipes(
            os.open(options.request_file, os.O_RDONLY),
            os.open(options.reply_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        )
    _die_with_parent()
    for fd in (options.request_fd, options.reply_fd):
        os.set_inheritable(fd, False)
    return Pipes(options.request_fd, options.reply_fd)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _load(executor_name: str, folder: str, device: str) -> tuple[Executor, str]:
    if executor_name == EXECUTOR:
        from stubs import imports  # imports torch, which a worker for another executor need not have

        if device == "cuda":
            imports.require_gpu()
        imports.install()
    if folder:
        sys.path.insert(0, folder)
    executor: Any = importlib.import_module(executor_name)
    return executor, executor.prepare()


def _sessions(pipes: Pipes, executor: Executor, about: dict[str, Any], stack_fd: int) -> int:
    """Fork one session after the other until the parent closes its end."""
    parent = os.getpid()
    while True:
        pid = os.fork()
        if pid == 0:
            _run_forked(pipes, executor, about, stack_fd, parent)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == EXIT_ORPHANED:
            return 0
        if status != EXIT_FRESH:
            pipes.send("died", status=status)


def _run_forked(pipes: Pipes, executor: Executor, about: dict[str, Any], stack_fd: int, parent: int) -> None:
    """Never returns: a forked session must not run what its parent would run at exit."""
    _die_with_parent()
    if os.getppid() != parent:  # it died before we asked to be told
        os._exit(EXIT_ORPHANED)
    try:
        status = _session(pipes, executor, about, stack_fd)
    except BaseException:  # noqa: BLE001 - ours, not the target's: into the log, and the parent sees a death
        traceback.print_exc()
        status = EXIT_OUR_FAULT
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _session(pipes: Pipes, executor: Executor, about: dict[str, Any], stack_fd: int) -> int:
    """Greet, then answer requests until told to end."""
    pipes.send("ready", pid=os.getpid(), **about)
    while (request := pipes.receive()) is not None:
        if request.get("fresh"):
            return EXIT_FRESH
        if "ask" in request:
            pipes.send("answer", **_answer(executor, request))
        else:
            _tell_stacks(stack_fd)
            slot.begin(request["id"])
            trace = _execute(executor, parse(request["program"]), about["sglang_version"])
            pipes.send("trace", id=request["id"], trace=trace.to_json())
    return EXIT_ORPHANED


def _answer(executor: Executor, request: dict[str, Any]) -> dict[str, Any]:
    """What the executor says of the target, or why it could not."""
    try:
        if request["ask"] == PAIRS:
            return {"value": executor.available_pairs()}
        return {"value": executor.speculative_modes(request["about"])}
    except BaseException as error:  # noqa: BLE001 - as for the import: foreign code, and the reason is passed on
        traceback.print_exc()
        return {"message": _one_line(error)}


def _execute(executor: Executor, program: Program, version: str) -> Trace:
    """What escapes ``execute`` is judged by ``escaped``."""
    started = time.monotonic()
    try:
        return executor.execute(program)
    except BaseException as error:  # noqa: BLE001 - the boundary of the process: reported as data, traceback and all
        finding = escaped(error, program)
    return Trace(steps=(), findings=(finding,), seconds=time.monotonic() - started, sglang_version=version)


def escaped(error: BaseException, program: Program) -> Finding:
    """The finding for an exception that ``execute`` let through: bug for what the target left by, infra for any other.

    Nobody else raises SystemExit here; KeyboardInterrupt neither, for SIGINT is ignored, but our code might.
    """
    place = innermost(traceback.extract_tb(error.__traceback__))
    is_theirs = isinstance(error, SystemExit) or (isinstance(error, KeyboardInterrupt) and place != "")
    kind, place = type(error).__name__, place or "process"
    return Finding(
        verdict=Verdict.BUG if is_theirs else Verdict.INFRA,
        signature=Signature("contract" if is_theirs else "harness", kind, place),
        title=f"{kind} at {place}",
        message=f"execute() let it through: {_one_line(error)}",
        op_index=max(0, len(program.ops) - 1),
        mode="unknown",
        evidence={"traceback": "".join(traceback.format_exception(error))[-8000:]},
    )


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


if __name__ == "__main__":
    sys.exit(main())
