"""The parent's handle on one worker: start it, run programs in it, and learn how it died."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuzz.channel import Channel, Ended, Silence
from fuzz.death import Death, cause
from fuzz.finding import CUDA_FAULT
from fuzz.launch import WorkerOptions, environment
from fuzz.memory import out_of_memory_kills, resident_mb
from fuzz.output import size, tail, trim
from fuzz.program import Program
from fuzz.slot import op_begun, open_slot
from fuzz.trace import Trace
from fuzz.worker import EXIT_OUR_FAULT

START_SECONDS = 300  # importing SGLang takes 10 to 15 s on a quiet machine; a cold disk and busy cores take longer
SESSION_SECONDS = 60  # forking a session takes milliseconds
GRACE_SECONDS = 2  # for the program under way when a stop is asked for
DUMP_SECONDS = 2  # for a hung process to write its stack
LOG_BYTES_MAX = 8 << 20  # a target that prints much does not fill the disk: older text is dropped
TAIL_BYTES = 4000


class WorkerError(RuntimeError):
    """The worker never got ready; the message says why and where its log is."""


class Stopped(Exception):
    """A stop was asked for, or time was up, while the worker was busy, and the grace ran out."""


class _TooLarge(Exception):
    """The program under way has taken more memory than it may."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What a worker says of its target. ``pairs``, once it was asked: each with "" or the reason why it cannot run."""

    sglang_version: str
    pairs: dict[str, str]
    import_seconds: float


class WorkerProcess:
    """A held resource: ``launch``, ``wait_ready``, then ``run`` at will; ``close`` ends it.

    A worker that dies is started again by the next ``run``. The thread that launches must live as long as the worker:
    the kernel ends the child with the thread that made it.
    """

    def __init__(self, options: WorkerOptions, stop: threading.Event | None = None) -> None:
        self.options = options
        self._stop = stop or threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._session_pid: int | None = None  # None: the next session has yet to greet
        self._requests = 0
        self._is_running = False  # a program is under way
        self._memory_mb = self._greeting_mb = 0  # of the session: when last seen, and when it began
        self._log = options.out / f"worker-{options.number}.log"
        self._fault_file = options.fault_file
        self.until = float("inf")  # monotonic; whatever is under way then is given up, and Stopped raised

    def launch(self) -> None:
        """Start the child without waiting for it."""
        self.close()
        options = self.options
        try:
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._slot = open_slot(options.slot_file)
        except OSError as error:
            raise WorkerError(f"cannot write {self._log}: {error.strerror}; make room or give another folder") from None
        request_fd, our_request_fd = os.pipe()
        our_reply_fd, reply_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                options.command(request_fd, reply_fd),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(request_fd, reply_fd),
                cwd=options.out,  # what the target drops, it drops there
                env=environment(options.device),
                start_new_session=True,  # Ctrl-C reaches the parent alone, and the whole family can be ended
            )
        except OSError as error:
            os.close(our_request_fd)
            os.close(our_reply_fd)
            raise WorkerError(
                f"cannot start {options.python}: {error.strerror}; give --python an interpreter"
            ) from None
        finally:
            for fd in (log, request_fd, reply_fd):
                os.close(fd)
        self._channel = Channel(self._process, our_request_fd, our_reply_fd, self._look)

    def wait_ready(self, timeout_seconds: float = START_SECONDS) -> Ready:
        """Wait until the target is imported. WorkerError if that fails, whatever way."""
        try:
            message = self._receive(("ready", "cannot_start"), time.monotonic() + timeout_seconds)
        except Ended as ended:
            raise self._not_ready(f"ended with {cause(ended.status)} before it was ready") from None
        except Silence:
            raise self._not_ready(f"was not ready after {timeout_seconds:.0f} s") from None
        if message["kind"] == "cannot_start":
            raise self._not_ready(f"cannot run the target: {message['message']}")
        self._session_pid = message["pid"]
        self._memory_mb = self._greeting_mb = resident_mb(message["pid"])
        limit = self.options.memory_max_mb
        if self._greeting_mb >= limit:
            raise self._not_ready(f"has {self._greeting_mb} MB once the target is imported, and may have {limit} MB")
        return Ready(message["sglang_version"], {}, message["import_seconds"])

    def ask(self, question: str, about: Sequence[str] = (), timeout_seconds: float = START_SECONDS) -> Any:
        """What the executor says to PAIRS or, about some pairs, to SPECULATIVE. Raises WorkerError."""
        self._await_session()
        try:
            self._send({"ask": question, "about": list(about)})
            answer = self._receive(("answer",), time.monotonic() + timeout_seconds)
        except Ended as ended:
            raise self._not_ready(f"ended with {cause(ended.status)} when asked for its {question}") from None
        except Silence:
            raise self._not_ready(f"said nothing for {timeout_seconds:.0f} s when asked for its {question}") from None
        if "message" in answer:
            raise self._not_ready(f"cannot tell its {question}: {answer['message']}")
        return answer["value"]

    def run(self, program: Program, timeout_seconds: float) -> Trace:
        """Execute ``program``. A worker that dies, hangs or grows over it yields a trace with that as its one finding.

        Raises WorkerError if the worker had to be started first and could not be, Stopped after a stop.
        """
        self._await_session()
        kills, log_from, dump_from = out_of_memory_kills(), trim(self._log, LOG_BYTES_MAX), size(self._fault_file)
        started = time.monotonic()
        self._requests += 1
        status: int | None = None
        too_large = False
        self._is_running = True
        try:
            return self._answer(program, started + timeout_seconds)
        except (Silence, _TooLarge) as given_up:
            self._is_running = False
            self._end_session(dump_from)
            too_large = isinstance(given_up, _TooLarge) or self._memory_mb > self.options.memory_max_mb
        except Ended as ended:
            status = ended.status
        finally:
            self._is_running = False
        self._session_pid = None
        death = Death(
            status=status,
            dump=tail(self._fault_file, dump_from, 1 << 20),
            log=tail(self._log, log_from, TAIL_BYTES),
            seconds=time.monotonic() - started,
            op_index=op_begun(self._slot, self._requests),
            memory_mb=self._memory_mb,
            too_large=too_large,
            out_of_memory=status == -signal.SIGKILL and out_of_memory_kills() > kills,
            harness=status == EXIT_OUR_FAULT,
        )
        return Trace(steps=(), findings=(death.finding(program),), seconds=death.seconds, sglang_version="")

    def _answer(self, program: Program, deadline: float) -> Trace:
        self._send({"id": self._requests, "program": program.text})
        message: dict[str, Any] = {"id": None}
        while message["id"] != self._requests:  # else the answer of a session whose predecessor died while idle
            message = self._receive(("trace",), deadline)
        trace = Trace.from_json(message["trace"])
        if any(finding.signature.kind == CUDA_FAULT for finding in trace.findings):
            self.renew()  # every later call on the GPU would fail in that process
        return trace

    def renew(self) -> None:
        """Have the next program run in a process in which none has run before."""
        if self.options.device == "cuda":
            self.close()  # no forking with CUDA: the next run starts a new one
        elif self._session_pid is not None:
            try:
                self._send({"fresh": True})
            except Ended:
                self.close()
            self._session_pid = None

    def close(self) -> None:
        """End the child and all its children, at once."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # all of them have ended already
            self._process.wait()
        if self._channel is not None:
            self._channel.close()
        self._process = self._channel = self._session_pid = None

    def _await_session(self) -> None:
        """A session that died while idle is noticed here, so that no program is blamed for it."""
        if self._process is None or self._process.poll() is not None:
            self.launch()
            self.wait_ready()
            return
        if self._session_pid is not None:
            try:
                self._receive((), time.monotonic())
            except Silence:
                if not self._has_grown():
                    return
                self.renew()
                return self._await_session()
            except Ended:
                self._session_pid = None
        self.wait_ready(SESSION_SECONDS)

    def _has_grown(self) -> bool:
        """Whether earlier programs left so much behind that the next one might be blamed for it."""
        assert self._session_pid is not None
        self._memory_mb = resident_mb(self._session_pid)
        room = self.options.memory_max_mb - self._greeting_mb
        return self._memory_mb - self._greeting_mb > room // 2

    def _receive(self, kinds: tuple[str, ...], deadline: float) -> dict[str, Any]:
        assert self._channel is not None
        return self._channel.receive(kinds, deadline)

    def _send(self, request: dict[str, Any]) -> None:
        assert self._channel is not None
        self._channel.send(request)

    def _look(self) -> None:
        """Ends a wait: after a stop, past ``until``, or where a running program has taken too much memory."""
        now = time.monotonic()
        if self._stop.is_set():
            self.until = min(self.until, now + GRACE_SECONDS)
        if now >= self.until:
            self.close()
            raise Stopped
        if self._is_running and self._session_pid is not None:
            self._memory_mb = resident_mb(self._session_pid) or self._memory_mb
            if self._memory_mb > self.options.memory_max_mb:
                raise _TooLarge

    def _end_session(self, dump_from: int) -> None:
        """Have the session write its stack, then end it; the whole worker if its parent does not notice."""
        assert self._session_pid is not None
        try:
            os.kill(self._session_pid, signal.SIGUSR1)
            deadline = time.monotonic() + DUMP_SECONDS
            while size(self._fault_file) == dump_from and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.1)  # the dump is written line by line
            self._memory_mb = max(self._memory_mb, resident_mb(self._session_pid))  # it ran on meanwhile
            os.kill(self._session_pid, signal.SIGKILL)
            self._receive((), time.monotonic() + GRACE_SECONDS)
        except Ended:
            return
        except (Silence, ProcessLookupError):
            pass
        self.close()

    def _not_ready(self, what: str) -> WorkerError:
        self.close()
        return WorkerError(f"the worker {what} (log: {self._log})")
