"""Git histories made on the spot, a letter a commit, in which it is known what each commit does to the bug."""

from __future__ import annotations

import subprocess
from pathlib import Path

from fuzz.program import Decode, Extend, Idle, Program, Row
from stubs.world import World

SIGNATURE = "contract/KeyError/step"
PROGRAM = Program(World(), (Extend((Row(0, 3),)), Idle(), Decode((0,))))
_STEP = """\
import random
class Gap(Exception): pass
class Refusal(Exception): pass
chance = random.Random(5)
def step(kind, seed):
    if kind == 'decode':
        {}
"""
# What SGLang's package is in a commit of that letter. The bug is a KeyError in decode.
SOURCES = {
    "c": _STEP.format("pass"),  # clean
    "C": _STEP.format("pass  # written in another way"),
    "b": _STEP.format("raise KeyError('x')"),  # the bug
    "B": _STEP.format("raise KeyError('x')") + "def second(): raise TypeError('never called')\n",
    "f": _STEP.format("[{}.get, {}.__getitem__][chance.random() < 0.3]('x')"),  # the bug, in 3 of 10 runs
    "o": _STEP.format("raise TypeError('x')"),  # a second fault, which hides whether the first is there
    "i": "raise ImportError('a half-finished commit')\n",
    "g": _STEP.format("raise Gap('lacks field')"),  # our stubs are behind
    "u": _STEP.format("raise Refusal('page size')"),
    "k": "import os\n" + _STEP.format("os.kill(os.getpid(), 9)"),  # runs that end in nothing
}
NOTHING = "n"  # changes a file outside of python/


class History:
    """A repository with one branch, whose commits are tagged 0, 1, ..."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commits: list[str] = []
        folder.mkdir(parents=True)
        self.git("init", "-q")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
        command = ["git", "-C", str(self.folder), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def add(self, letters: str) -> None:
        """One commit a letter."""
        for letter in letters:
            number = len(self.commits)
            if letter == NOTHING:
                (self.folder / "README").write_text(f"{number}\n")
            else:
                package = self.folder / "python" / "sglang"
                package.mkdir(parents=True, exist_ok=True)
                (package / "__init__.py").write_text(f"__version__ = '9.1'\n{SOURCES[letter]}")
            self.git("add", "-A")
            self.git("commit", "-q", "--allow-empty", "-m", f"{number}{letter}")
            self.git("tag", str(number))
            self.commits.append(self.git("rev-parse", "HEAD"))

    def number(self, target: str) -> int:
        """Which commit a target ``git:DIR@COMMIT`` is of."""
        return self.commits.index(target.rpartition("@")[2])


def write_script(path: Path, signature: str = SIGNATURE, reliability: str = "20 of 20", found_on: str = "") -> Path:
    """A saved repro of PROGRAM."""
    path.parent.mkdir(parents=True, exist_ok=True)
    doc = f'"""A title\n\nFound on {found_on}; seen on x; shown in {reliability} runs; sglang 9.\n"""\n'
    path.write_text(f"{doc}PROGRAM = {PROGRAM.text!r}\nSIGNATURE = {signature!r}\nFOUND_ON = {found_on!r}\n")
    return path
