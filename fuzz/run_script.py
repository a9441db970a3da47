"""Runs a repro script in this process, on a target, with stand-ins for what this machine lacks.

``python -m fuzz.run_script SCRIPT --target SPEC``. Scripts are otherwise only parsed: this runs one as it is, so it is
for scripts that you trust. The exit status is the script's: 0, 1, or 125 where the target cannot be had or imported.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from fuzz.program import ProgramError
from fuzz.repro import read_repro
from fuzz.targets import TargetError, resolve

CANNOT_TELL = 125


def run_script(script: Path, spec: str) -> None:
    """Run ``script`` as ``__main__``; leaves by SystemExit with its status. Raises TargetError."""
    target = resolve(spec)
    try:
        if target.folder is not None:
            sys.path.insert(0, str(target.folder))
        with _supplied(script):
            sys.argv = [str(script)]
            os.environ["SEAMRIPPER_TARGET"] = spec  # a file that holds its program alone asks seamripper
            runpy.run_path(str(script), run_name="__main__")
    finally:
        target.cleanup()


def _supplied(script: Path) -> AbstractContextManager[None]:
    """Stand-ins first, then SGLang, then answers for the GPU that is not there, some of them for this script alone."""
    from stubs import imports, sglang_flashinfer, sglang_imports, sglang_platform

    imports.install()
    sglang_imports.import_attention()
    sglang_platform.prepare_platform()
    try:
        world = read_repro(script).program.world
    except ProgramError:  # a script of another's making
        return nullcontext()
    return sglang_flashinfer.blackwell(world.prefill, world.decode)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.run_script", description=__doc__)
    parser.add_argument("script", type=Path)
    parser.add_argument("--target", default="installed", metavar="SPEC")
    given = parser.parse_args()
    try:
        run_script(given.script, given.target)
    except TargetError as error:
        print(error, file=sys.stderr)
        sys.exit(CANNOT_TELL)
    except Exception:  # noqa: BLE001 - whatever keeps a target from being imported, nothing can be told
        traceback.print_exc()
        sys.exit(CANNOT_TELL)


if __name__ == "__main__":
    main()
