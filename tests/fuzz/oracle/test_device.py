"""Which errors break a GPU's context, and what they are filed under."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from fuzz.finding import Verdict
from fuzz.oracle.contract import Judgement, judge
from fuzz.oracle.device import broken_by

ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"


@pytest.mark.parametrize(
    ("message", "broken"),
    [
        (ILLEGAL, ("bounds", "an illegal memory access was encountered")),
        (
            "Triton Error [CUDA]: an illegal memory access was encountered",
            ("bounds", "an illegal memory access was encountered"),
        ),
        ("CUDA error: misaligned address", ("bounds", "misaligned address")),
        ("CUDA error: device-side assert triggered", ("contract", "device-side assert triggered")),
        ("CUDA error: unspecified launch failure", ("contract", "unspecified launch failure")),
        # After these the process can go on.
        ("CUDA error: invalid configuration argument", None),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", None),
        ("Triton Error [CUDA]: out of resource: shared memory", None),
        # This one is of no GPU.
        ("misaligned address 5: pages are of 4", None),
    ],
)
def test_errors_after_which_nothing_can_be_run(message: str, broken: tuple[str, str] | None) -> None:
    assert broken_by(RuntimeError(message)) == broken


def judged(tmp_path: Path, folder: str, source: str) -> Judgement:
    """What is made of an error raised in a file of a package ``folder``."""
    package = tmp_path / folder
    package.mkdir()
    (package / "__init__.py").write_text(source)
    spec = importlib.util.spec_from_file_location("raising", package / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        module.forward()
    except RuntimeError as error:
        return judge(error, (), "TritonAttnBackend.decode")
    raise AssertionError("nothing was raised")


RAISING = f"import torch\ndef forward():\n    raise torch.AcceleratorError({ILLEGAL!r})\n"


def test_fault_is_put_where_sglang_was(tmp_path: Path) -> None:
    judgement = judged(tmp_path, "sglang", RAISING)
    assert (judgement.verdict, str(judgement.signature)) == (Verdict.BUG, "bounds/cuda_fault/forward")
    assert judgement.title == "an illegal memory access was encountered, in forward"
    assert "AcceleratorError" in judgement.evidence["traceback"]


def test_fault_that_comes_to_light_later_is_put_where_the_step_was(tmp_path: Path) -> None:
    judgement = judged(tmp_path, "elsewhere", RAISING)
    assert (judgement.verdict, str(judgement.signature)) == (
        Verdict.BUG,
        "bounds/cuda_fault/TritonAttnBackend.decode",
    )


@pytest.mark.parametrize("message", ["CUDA out of memory. Tried to allocate 2 GiB", "CUDA error: out of memory"])
def test_gpu_that_is_full_says_nothing_of_sglang(message: str) -> None:
    judgement = judge(torch.OutOfMemoryError(message))
    assert (judgement.verdict, judgement.signature.kind) == (Verdict.INFRA, "no_gpu")
