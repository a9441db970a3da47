"""The parent's ends of a worker's pipes: requests out, messages in, one JSON line each, until the process ends."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from typing import Any

POLL_SECONDS = 0.1  # how late an ended process, a stop or a growing memory is noticed at most


class Silence(Exception):
    """No message came in time."""


class Ended(Exception):
    """The process, or its session, ended; ``status`` is negative for a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Channel:
    """A held resource: ``close`` it. ``look`` is called at every turn of a wait and ends it by what it raises."""

    def __init__(
        self, process: subprocess.Popen[bytes], request_fd: int, reply_fd: int, look: Callable[[], None]
    ) -> None:
        self._process, self._look = process, look
        self._request_fd, self._reply_fd = request_fd, reply_fd
        self._unread = b""

    def close(self) -> None:
        os.close(self._request_fd)
        os.close(self._reply_fd)

    def send(self, request: dict[str, Any]) -> None:
        data = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._request_fd, data) :]
        except BrokenPipeError:
            raise Ended(self._process.wait()) from None

    def receive(self, kinds: tuple[str, ...], deadline: float) -> dict[str, Any]:
        """The next message of these kinds. "died" is raised as Ended, like the end of the whole process.

        Raises Silence past ``deadline`` (monotonic).
        """
        while (message := self._next_message(deadline))["kind"] not in kinds:
            if message["kind"] == "died":
                raise Ended(message["status"])
        return message

    def _next_message(self, deadline: float) -> dict[str, Any]:
        while (message := self._next_unread()) is None:
            self._look()
            now = time.monotonic()
            ended = self._process.poll()  # before the last look at the pipe, so that no reply is missed
            patience = 0 if ended is not None else max(0.0, min(POLL_SECONDS, deadline - now))
            if select.select([self._reply_fd], [], [], patience)[0]:
                data = os.read(self._reply_fd, 1 << 20)
                self._unread += data
                if not data:
                    raise Ended(self._process.wait())
            elif ended is not None:
                raise Ended(ended)
            elif now >= deadline:
                raise Silence
        return message

    def _next_unread(self) -> dict[str, Any] | None:
        """Take the next whole message; what a dying session left half-written is skipped."""
        while b"\n" in self._unread:
            line, self._unread = self._unread.split(b"\n", 1)
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                return message
        return None
