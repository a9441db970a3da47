"""The child's side: its pipes, what it makes of what escapes the executor, and that it does not outlive its parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.finding import Verdict
from fuzz.launch import ROOT, WorkerOptions
from fuzz.process import WorkerError, WorkerProcess
from fuzz.program import Decode, Extend, Program, Row
from fuzz.worker import Pipes, escaped
from stubs.world import World
from tests.fuzz.conftest import FAKE_EXECUTOR, MakeTarget, MakeWorker

PROGRAM = Program(World(), (Extend((Row(0, 3),)), Decode((0,))))


@pytest.fixture
def ends() -> Iterator[tuple[Pipes, int, int]]:
    """A child's pipes, and the parent's ends of them: where to write requests, where to read replies."""
    request_read, request_write = os.pipe()
    reply_read, reply_write = os.pipe()
    yield Pipes(request_read, reply_write), request_write, reply_read
    for fd in (request_read, reply_read, reply_write):
        os.close(fd)


def test_requests_that_arrive_together_are_read_one_by_one(ends: tuple[Pipes, int, int]) -> None:
    pipes, requests, _ = ends
    os.write(requests, b'{"id":1}\n{"id":2}\n')
    assert [pipes.receive(), pipes.receive()] == [{"id": 1}, {"id": 2}]
    os.close(requests)


def test_request_that_arrives_in_pieces_is_put_together(ends: tuple[Pipes, int, int]) -> None:
    pipes, requests, _ = ends
    os.write(requests, b'{"id":')
    if os.fork() == 0:
        time.sleep(0.1)
        os.write(requests, b"1}\n")
        os._exit(0)
    assert pipes.receive() == {"id": 1}
    os.wait()
    os.close(requests)


def test_closed_pipe_is_the_end(ends: tuple[Pipes, int, int]) -> None:
    pipes, requests, _ = ends
    os.close(requests)
    assert pipes.receive() is None


def test_message_ends_what_a_dead_session_left_half_written(ends: tuple[Pipes, int, int]) -> None:
    pipes, requests, replies = ends
    os.write(pipes.reply_fd, b'{"kind":"tra')
    pipes.send("died", status=-11)
    assert os.read(replies, 1000).split(b"\n") == [b'{"kind":"tra', b'{"kind":"died","status":-11}', b""]
    os.close(requests)


def test_system_exit_is_the_targets_doing() -> None:
    finding = escaped(SystemExit(3), PROGRAM)
    assert (finding.verdict, str(finding.signature)) == (Verdict.BUG, "contract/SystemExit/process")
    assert finding.message == "execute() let it through: SystemExit: 3"


def test_any_other_exception_that_escapes_is_ours() -> None:
    finding = escaped(ValueError("x"), PROGRAM)
    assert (finding.verdict, str(finding.signature)) == (Verdict.INFRA, "harness/ValueError/process")
    assert "ValueError: x" in finding.evidence["traceback"]


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie, which is what it is until whoever inherited it looks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends_soon(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def test_nobody_outlives_a_killed_parent(make_target: MakeTarget, tmp_path: Path) -> None:
    target = make_target(
        "import os, time\ndef step(kind, seed):\n    print(os.getpid(), os.getppid()); time.sleep(99)\n"
    )
    parent = (
        "import sys\nfrom pathlib import Path\nfrom fuzz.launch import WorkerOptions\nfrom fuzz.process import WorkerProcess\n"
        "from fuzz.program import parse\n"
        f"options = WorkerOptions(sys.executable, Path({str(target)!r}), Path({str(tmp_path)!r}), executor={FAKE_EXECUTOR!r})\n"
        f"WorkerProcess(options).run(parse({PROGRAM.text!r}), 99)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT)
    log = tmp_path / "worker-0.log"
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    session, worker = (int(pid) for pid in log.read_text().split())
    assert is_running(session)
    process.kill()
    process.wait()
    assert (ends_soon(session), ends_soon(worker)) == (True, True)


def test_requests_in_a_file_are_answered_in_a_file_and_that_is_all(make_target: MakeTarget, tmp_path: Path) -> None:
    requests, replies = tmp_path / "requests", tmp_path / "replies"
    requests.write_text(json.dumps({"id": 7, "program": PROGRAM.text}) + "\n")
    options = WorkerOptions(sys.executable, make_target(), tmp_path, device="cuda", executor=FAKE_EXECUTOR)
    command = options.command_on_files(requests, replies)
    assert subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode == 0
    messages = [json.loads(line) for line in replies.read_text().splitlines() if line]
    assert [(message["kind"], message.get("id")) for message in messages] == [("ready", None), ("trace", 7)]


def test_worker_for_a_gpu_without_one_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # wherever this runs
    worker = WorkerProcess(WorkerOptions(sys.executable, None, tmp_path, device="cuda"))
    worker.launch()
    with pytest.raises(WorkerError, match="sees no CUDA device; expected one: use --device cpu without it"):
        worker.wait_ready(60)


def test_ctrl_c_is_the_parents_affair(make_worker: MakeWorker) -> None:
    worker = make_worker("import os, signal\ndef step(kind, seed):\n    os.kill(os.getpid(), signal.SIGINT)\n")
    assert worker.run(PROGRAM, 20).verdict is Verdict.OK


def test_core_files_are_not_written(make_worker: MakeWorker, tmp_path: Path) -> None:
    source = (
        "import os, resource\ndef step(kind, seed):\n    raise KeyError(resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
    )
    (finding,) = make_worker(source).run(PROGRAM, 20).findings
    assert finding.message == "0"


def test_target_comes_first_on_the_path(make_worker: MakeWorker) -> None:
    worker = make_worker("import sys\ndef step(kind, seed):\n    raise KeyError(sys.path[0])\n")
    (finding,) = worker.run(PROGRAM, 20).findings
    assert json.loads(finding.message.replace("'", '"')) == str(worker.options.folder)
