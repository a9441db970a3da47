"""Where tests have their targets from: wheels and a repository made on the spot, and a process that resolves one."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from fuzz import targets

RESOLVE = """
import sys, json
from pathlib import Path
from fuzz.targets import resolve
target = resolve(sys.argv[1], Path(sys.argv[2]))
print(json.dumps([str(target.folder), "sglang" in sys.modules, "torch" in sys.modules]))
"""


def write_wheel(folder: Path, version: str) -> Path:
    info = f"sglang-{version}.dist-info"
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("sglang/__init__.py", f"raise SystemExit('{version} was imported')\n")
        wheel.writestr("sglang/srt/server_args.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_checkout(folder: Path) -> None:
    """A repository with tags: v1 has python/sglang, v2 has sglang at the root, v3 has neither."""
    (folder / "python" / "sglang").mkdir(parents=True)
    (folder / "python" / "sglang" / "__init__.py").write_text("one = 1\n")
    git(folder, "init", "-q")
    for tag, change in (("v1", ()), ("v2", ("mv", "python/sglang", "sglang")), ("v3", ("mv", "sglang", "other"))):
        if change:
            git(folder, *change)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", tag)
        git(folder, "tag", tag)


def resolve_elsewhere(spec: str, cache: Path) -> tuple[str, bool, bool]:
    command = [sys.executable, "-c", RESOLVE, spec, str(cache)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(targets.__file__).parents[1])
    folder, sglang, torch = json.loads(done.stdout)
    return folder, sglang, torch
