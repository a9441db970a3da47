"""How much memory a worker has, how much it may have, and whether the machine ran out of it."""

from __future__ import annotations

from pathlib import Path

import psutil

MB = 1 << 20
# A worker with SGLang imported has some 600 MB on a CPU and a few thousand with CUDA; programs are small.
LIMIT_MB = {"cpu": 4096, "cuda": 16384}
SHARE = 0.8  # of the machine's memory, for all workers together: the rest of it has to live, too
_CGROUP = Path("/sys/fs/cgroup")


def limit_mb(device: str, workers: int) -> int:
    """The most that one of ``workers`` may have, unless the user says otherwise."""
    return min(LIMIT_MB[device], int(machine_mb() * SHARE) // workers)


def machine_mb() -> int:
    """What there is for us: the machine's memory, or less where a control group is given less."""
    total = int(psutil.virtual_memory().total)
    try:
        total = min(total, int((_CGROUP / "memory.max").read_text()))
    except (OSError, ValueError):
        pass  # no such group, or it says "max"
    return total // MB


def resident_mb(pid: int) -> int:
    """What a process has in memory, shared pages included; 0 if it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss) // MB
    except psutil.Error:
        return 0


def out_of_memory_kills() -> int:
    """How often the kernel's out-of-memory killer struck, in this control group or anywhere; 0 where nothing tells."""
    return sum(_counted(path) for path in (_CGROUP / "memory.events", Path("/proc/vmstat")))


def _counted(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
