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
from contextlib import ExitStack
from pathlib import Path

from fuzz.finding import BREACH
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


def _supplied(script: Path) -> ExitStack:
    """Stand-ins first, then SGLang, then answers for the GPU that is not there, some of them for this script alone.

    Where the script is not about a breach of contract, those that can be are answered, as they were when it was found.
    """
    from stubs import imports, sglang_flashinfer, sglang_imports, sglang_platform
    from stubs.kernels.contract import noted_in

    imports.install()
    sglang_imports.import_attention()
    sglang_platform.prepare_platform()
    try:
        repro = read_repro(script)
    except ProgramError:  # a script of another's making
        return ExitStack()
    supplied = ExitStack()
    supplied.enter_context(sglang_flashinfer.blackwell(repro.program.world.prefill, repro.program.world.decode))
    if repro.signature is not None and repro.signature.kind != BREACH:
        supplied.enter_context(noted_in([]))
    return supplied


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
