"""How a worker is started: its options, its command line and its environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fuzz.memory import limit_mb
from fuzz.worker import EXECUTOR

ROOT = Path(__file__).resolve().parent.parent  # the folder that holds our rooms, for the child's sys.path


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """``folder`` holds ``sglang/`` (None: the installed one); logs go to ``out``, named by ``number``.

    ``memory_mb`` is the most that the worker may have in memory; 0: what ``fuzz.memory`` says of a worker alone.
    """

    python: str
    folder: Path | None
    out: Path
    number: int = 0
    device: str = "cpu"
    executor: str = EXECUTOR
    memory_mb: int = 0

    @property
    def memory_max_mb(self) -> int:
        return self.memory_mb or limit_mb(self.device, 1)

    @property
    def slot_file(self) -> Path:
        """Where the worker notes how far it has come."""
        return self.out / f"worker-{self.number}.slot"

    @property
    def fault_file(self) -> Path:
        """Where Python writes the stack of a worker that crashes or hangs."""
        return self.out / f"worker-{self.number}.stack"

    def command(self, request_fd: int, reply_fd: int) -> list[str]:
        """The worker at the other ends of these pipes."""
        return self._command(f"--request-fd={request_fd}", f"--reply-fd={reply_fd}")

    def command_on_files(self, requests: Path, replies: Path) -> list[str]:
        """A worker that answers what stands in a file, for running under another program, and ends."""
        return self._command(f"--request-file={requests.resolve()}", f"--reply-file={replies.resolve()}")

    def _command(self, *channel: str) -> list[str]:
        # The child starts in another folder. Not resolved: a link is what makes a virtual environment's interpreter.
        python = os.path.abspath(self.python) if os.sep in self.python else self.python
        command = [python, "-m", "fuzz.worker", *channel]
        command += [f"--fault-file={self.fault_file.resolve()}", f"--device={self.device}"]
        command += [f"--slot-file={self.slot_file.resolve()}"]
        command += [f"--executor={self.executor}"]
        return command + ([f"--folder={self.folder.resolve()}"] if self.folder else [])


def environment(device: str = "cpu") -> dict[str, str]:
    """One numeric thread: workers run side by side. A fixed hash seed: the same program runs the same way.

    A worker for the CPU is shown no GPU: Triton's kernels are interpreted and closed kernels stood in for, there too.
    One for a GPU launches a kernel at a time, so that a fault is raised by the call that made it.
    """
    ours = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHONUNBUFFERED")}
    given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    path = os.pathsep.join([str(ROOT), *map(os.path.abspath, given)])
    ours |= {"CUDA_LAUNCH_BLOCKING": "1"} if device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
    return {**os.environ, **ours, "PYTHONHASHSEED": "0", "PYTHONPATH": path}
