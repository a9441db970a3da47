"""The handle on a worker: whatever the target does, the parent learns what it was and can go on."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from fuzz.finding import Finding, Verdict
from fuzz.process import Stopped, WorkerError, WorkerProcess
from fuzz.program import Decode, Extend, Program, Row, Verify
from fuzz.worker import PAIRS, SPECULATIVE
from stubs.world import World
from tests.fuzz.conftest import CLEAN, MakeWorker

EXTEND = Extend((Row(0, 3),))
GOOD = Program(World(), (EXTEND,))
BAD = Program(World(), (EXTEND, Decode((0,))))
# Decode does something dreadful; everything else works.
CRASH = """
import ctypes, os, signal, sys, time

class Backend:
    def forward_decode(self):
        {crash}

def step(kind, seed):
    if kind == "decode":
        Backend().forward_decode()
"""


def crash(statement: str) -> str:
    return CRASH.format(crash=statement)


def only_finding(worker: WorkerProcess, program: Program, timeout_seconds: float = 20) -> Finding:
    (finding,) = worker.run(program, timeout_seconds).findings
    return finding


def test_ready_tells_the_version(make_worker: MakeWorker) -> None:
    worker = make_worker()
    worker.launch()
    assert worker.wait_ready(30).sglang_version == "9.1"


def test_asked_for_its_pairs(make_worker: MakeWorker) -> None:
    assert make_worker().ask(PAIRS) == {"triton:torch_native": "", "triton:fa3": "no fa3 here"}


def test_asked_for_speculative_modes(make_worker: MakeWorker) -> None:
    worker = make_worker("MODES = {'decode': 2}\n" + CLEAN)
    assert worker.ask(SPECULATIVE, ["triton:fa3"]) == {"triton:fa3": {"decode": 2}}


def test_asked_what_it_cannot_tell(make_worker: MakeWorker) -> None:
    with pytest.raises(WorkerError, match="cannot tell its pairs: TypeError: 'int' object is not iterable"):
        make_worker("PAIRS = 3\n").ask(PAIRS)


def test_death_over_a_question(make_worker: MakeWorker) -> None:
    source = "import os\nclass Pairs:\n    def keys(self): os.abort()\nPAIRS = Pairs()\n"
    with pytest.raises(WorkerError, match="ended with SIGABRT when asked for its pairs"):
        make_worker(source).ask(PAIRS)


def test_run_returns_the_trace(make_worker: MakeWorker) -> None:
    trace = make_worker().run(BAD, 20)
    assert [(step.mode, step.verdict) for step in trace.steps] == [("extend", Verdict.OK), ("decode", Verdict.OK)]
    assert trace.findings == ()
    assert trace.sglang_version == "9.1"


def test_exception_is_a_finding_of_the_executor(make_worker: MakeWorker) -> None:
    finding = only_finding(make_worker(crash("raise KeyError('x')")), BAD)
    assert str(finding.signature) == "contract/KeyError/Backend.forward_decode"


def test_segfault_names_the_sglang_frame(make_worker: MakeWorker) -> None:
    worker = make_worker(crash("ctypes.string_at(0)"))
    finding = only_finding(worker, BAD)
    assert finding.verdict is Verdict.BUG
    assert str(finding.signature) == "contract/SIGSEGV/Backend.forward_decode"
    assert "Current thread" in finding.evidence["stack"]


def test_worker_goes_on_after_a_crash_without_importing_again(make_worker: MakeWorker) -> None:
    worker = make_worker("print('imported')\n" + crash("os.abort()"))
    assert only_finding(worker, BAD).signature.kind == "SIGABRT"
    assert worker.run(GOOD, 20).verdict is Verdict.OK
    log = worker.options.out / "worker-0.log"
    assert log.read_text().count("imported") == 1


@pytest.mark.parametrize("statement", ["os.abort()", "time.sleep(1000)", "os._exit(0)"])
def test_worker_on_a_gpu_goes_on_after_a_death(make_worker: MakeWorker, statement: str) -> None:
    worker = make_worker(crash(statement), device="cuda")
    assert worker.run(GOOD, 20).verdict is Verdict.OK
    assert only_finding(worker, BAD, timeout_seconds=1).verdict is Verdict.BUG
    assert worker.run(GOOD, 20).verdict is Verdict.OK


def test_exit_inside_the_target_is_a_bug(make_worker: MakeWorker) -> None:
    finding = only_finding(make_worker(crash("os._exit(7)")), BAD)
    assert (finding.verdict, str(finding.signature)) == (Verdict.BUG, "contract/exit_7/process")


def test_sys_exit_is_a_bug_at_its_place(make_worker: MakeWorker) -> None:
    finding = only_finding(make_worker(crash("sys.exit(3)")), BAD)
    assert (finding.verdict, str(finding.signature)) == (Verdict.BUG, "contract/SystemExit/Backend.forward_decode")


def test_hang_is_a_bug_where_it_hung(make_worker: MakeWorker) -> None:
    worker = make_worker(crash("time.sleep(1000)"))
    worker.run(GOOD, 20)
    finding = only_finding(worker, BAD, timeout_seconds=0.5)
    assert (finding.verdict, str(finding.signature)) == (Verdict.BUG, "contract/hang/Backend.forward_decode")
    assert worker.run(GOOD, 20).verdict is Verdict.OK


def test_sigkill_is_infra_and_names_the_signal(make_worker: MakeWorker) -> None:
    finding = only_finding(make_worker(crash("os.kill(os.getpid(), signal.SIGKILL)")), BAD)
    assert (finding.verdict, finding.signature.kind) == (Verdict.INFRA, "SIGKILL")
    assert finding.message == "the process was ended by SIGKILL in the middle of the program"


def test_sigkill_of_the_whole_worker_is_noticed_and_it_is_started_again(make_worker: MakeWorker) -> None:
    worker = make_worker(crash("os.kill(os.getppid(), signal.SIGKILL); time.sleep(1000)"))
    assert only_finding(worker, BAD).signature.kind == "SIGKILL"
    assert worker.run(GOOD, 20).verdict is Verdict.OK


def test_no_program_is_blamed_for_a_session_killed_while_idle(make_worker: MakeWorker) -> None:
    worker = make_worker("import os\ndef step(kind, seed):\n    raise KeyError(os.getpid())\n")
    pid = int(only_finding(worker, GOOD).message)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    after = only_finding(worker, GOOD)
    assert after.signature.kind == "KeyError"
    assert after.message != str(pid)


def test_noise_on_stdout_and_stderr_stays_off_the_protocol(make_worker: MakeWorker) -> None:
    noise = 'print("{\\"kind\\":\\"died\\",\\"status\\":-11}"); os.write(1, b"raw"); os.write(2, b"err")'
    worker = make_worker(crash(noise))
    assert worker.run(BAD, 20).verdict is Verdict.OK
    assert '"died"' in (worker.options.out / "worker-0.log").read_text()


def test_output_of_the_program_that_died_is_evidence(make_worker: MakeWorker) -> None:
    finding = only_finding(make_worker(crash("print('last words', flush=True); os.abort()")), BAD)
    assert "last words" in finding.evidence["log"]


def test_fault_of_the_executor_itself_is_infra(make_worker: MakeWorker) -> None:
    worker = make_worker("class Fault(BaseException): pass\ndef step(kind, seed):\n    raise Fault('ours')\n")
    finding = only_finding(worker, GOOD)
    assert (finding.verdict, str(finding.signature)) == (Verdict.INFRA, "harness/Fault/step")


def test_renew_gives_a_process_in_which_nothing_has_run(make_worker: MakeWorker) -> None:
    worker = make_worker("ran = []\ndef step(kind, seed):\n    ran.append(kind)\n    raise KeyError(len(ran))\n")
    counts = [only_finding(worker, GOOD).message for _ in range(2)]
    worker.renew()
    assert (counts, only_finding(worker, GOOD).message) == (["1", "2"], "1")


def test_renew_on_a_gpu_starts_a_new_process(make_worker: MakeWorker) -> None:
    source = "import os\ndef step(kind, seed):\n    raise KeyError(os.getpid())\n"
    worker = make_worker(source, device="cuda")
    first = only_finding(worker, GOOD).message
    again = only_finding(worker, GOOD).message
    worker.renew()
    assert again == first
    assert only_finding(worker, GOOD).message != first


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_process_that_met_a_fault_of_the_gpu_runs_nothing_more(make_worker: MakeWorker, device: str) -> None:
    source = "import os\nclass cuda_fault(Exception): pass\ndef step(kind, seed):\n    raise cuda_fault(os.getpid())\n"
    worker = make_worker(source, device=device)
    first, second = (only_finding(worker, GOOD) for _ in range(2))
    assert (first.signature.kind, second.signature.kind) == ("cuda_fault", "cuda_fault")
    assert first.message != second.message


def test_failed_import_says_why(make_worker: MakeWorker) -> None:
    worker = make_worker("raise ImportError('no module named cutlass')")
    worker.launch()
    with pytest.raises(WorkerError, match="cannot run the target: ImportError: no module named cutlass.*worker-0.log"):
        worker.wait_ready(30)


def test_death_before_ready_says_how(make_worker: MakeWorker) -> None:
    worker = make_worker("import os\nos.abort()")
    worker.launch()
    with pytest.raises(WorkerError, match="ended with SIGABRT before it was ready"):
        worker.wait_ready(30)


def test_slow_start_is_given_up(make_worker: MakeWorker) -> None:
    worker = make_worker("import time\ntime.sleep(1000)")
    worker.launch()
    with pytest.raises(WorkerError, match="was not ready after 1 s"):
        worker.wait_ready(1)


def test_interpreter_that_is_not_there(make_worker: MakeWorker) -> None:
    with pytest.raises(WorkerError, match="cannot start /no/such/python: No such file"):
        make_worker(python="/no/such/python").launch()


def test_stop_ends_a_busy_worker_soon(make_worker: MakeWorker) -> None:
    stop = threading.Event()
    quiet = make_worker(crash("time.sleep(1000)"))
    worker = WorkerProcess(quiet.options, stop)
    worker.run(GOOD, 20)
    threading.Timer(0.2, stop.set).start()
    started = time.monotonic()
    with pytest.raises(Stopped):
        worker.run(BAD, 100)
    assert time.monotonic() - started < 10


def test_close_leaves_no_process(make_worker: MakeWorker) -> None:
    worker = make_worker("import os\ndef step(kind, seed):\n    raise KeyError(os.getpid())\n")
    pid = int(only_finding(worker, GOOD).message)
    worker.close()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()


def test_verify_survives_the_pipe(make_worker: MakeWorker) -> None:
    world = World(spec_algorithm="EAGLE", spec_steps=1, spec_topk=1, spec_draft_tokens=2)
    trace = make_worker().run(Program(world, (EXTEND, Verify((0,), (1,))), seed=5), 20)
    assert [step.mode for step in trace.steps] == ["extend", "verify"]
