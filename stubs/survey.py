"""Looks at one target from inside its process: versions, what is real, which attention backends can be built."""

from __future__ import annotations

import importlib
import json
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from stubs import imports
from stubs.world import World

VERSIONED = ("torch", "triton", "transformers", "numpy")


def survey() -> dict[str, Any]:
    """Everything the doctor reports, as JSON-able data; what fails is data too."""
    supplied = {stand_in.name: stand_in for stand_in in imports.install()}
    versions = {"python": platform.python_version(), "sglang": "", **{name: _version(name) for name in VERSIONED}}
    packages = {"GPU": _gpu(), "triton": _triton(), **{name: _package(name, supplied) for name in imports.NAMES}}
    backends: dict[str, str] = {}
    fault = ""
    began = time.perf_counter()
    try:
        sglang = importlib.import_module("stubs.sglang")
        versions["sglang"] = sglang.version()
        backends = _try_backends(sglang)
    except Exception as error:  # noqa: BLE001 - whatever the target raises while it is imported is the answer
        fault = _one_line(error)
    seconds = time.perf_counter() - began
    return {"versions": versions, "packages": packages, "backends": backends, "error": fault, "seconds": seconds}


def _try_backends(sglang: Any) -> dict[str, str]:
    """Each backend that the target registers, with "" or the reason why it cannot be built here."""
    importlib.import_module("stubs.sglang_imports").import_attention()
    importlib.import_module("stubs.sglang_platform").prepare_platform()
    fake_server = importlib.import_module("stubs.fake_server")
    runner = fake_server.build_fake_server(World()).target
    return {name: _trial(sglang, name, runner) for name in sorted(sglang.registry())}


def _trial(sglang: Any, name: str, runner: Any) -> str:
    try:
        sglang.build_backend(name, runner)
    except Exception as error:  # noqa: BLE001 - the reason, of whatever kind, is what the reader wants
        return _one_line(error)
    return ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _gpu() -> tuple[str, str]:
    if torch.cuda.is_available():
        return "real", torch.cuda.get_device_name()
    return "absent", "everything runs on the CPU; SGLang is told of a Hopper"


def _triton() -> tuple[str, str]:
    if find_spec("triton") is None:
        return "absent", "install triton"
    return ("real", "kernels are compiled") if torch.cuda.is_available() else ("stood in", "kernels are interpreted")


def _package(name: str, supplied: dict[str, imports.StandIn]) -> tuple[str, str]:
    if name in supplied:
        offers = ", ".join(supplied[name].offers) or "its names, for import only"
        return "stood in", f"the real one {_WHY[supplied[name].reason]}; offers {offers}"
    return ("real", "") if find_spec(name) is not None else ("absent", "")


_WHY = {"absent": "is absent", "does not import": "does not import"}


def _one_line(error: BaseException) -> str:
    if isinstance(error, AttributeError) and type(error.obj).__module__.startswith("stubs."):
        return f"stub gap: our {type(error.obj).__name__} has no {error.name!r}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(survey()))
