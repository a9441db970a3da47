"""Stand-ins: what they supply, what they refuse, and that each release imports over them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stubs.packages.unwritten import UnwrittenModule, unwritten
from stubs.packages.vllm import rotary_embedding

ROOT = Path(__file__).resolve().parents[2]
# What the stubs drive. A release that lacks a module is not asked for it.
MODULES = (
    "layers.attention.hybrid_attn_backend",
    "layers.attention.triton_backend",
    "layers.attention.torch_native_backend",
    "layers.attention.torch_flex_backend",
    "layers.attention.flashattention_backend",
    "speculative.eagle_info",
    "speculative.eagle_utils",
    "managers.schedule_batch",
    "mem_cache.memory_pool",
    "mem_cache.allocator",
    "model_executor.model_runner",
)

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, kernels are compiled")


def run(code: str, *path: Path) -> Any:
    """What ``code``, in a fresh process, puts into ``answer``. ``path`` goes first on sys.path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
    program = f"{code}\nimport json; print('\\n' + json.dumps(answer))"
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


INSTALL = "from stubs import imports\nsupplied = imports.install()\n"


def test_unwritten_name_says_itself_when_called() -> None:
    with pytest.raises(NotImplementedError, match=r"no stand-in for sgl_kernel\.fp8_gemm: it needs the real package"):
        UnwrittenModule("sgl_kernel").fp8_gemm(1)


def test_unwritten_attribute_says_its_path_when_called() -> None:
    with pytest.raises(NotImplementedError, match=r"no stand-in for cutlass\.cute\.runtime\.make_ptr"):
        unwritten("cutlass", "cute").runtime.make_ptr()


def test_unwritten_name_may_stand_in_an_annotation() -> None:
    name = unwritten("cutlass", "Int32")
    assert (name | None, isinstance(3, name), name[4]) == (name | None, False, name)


def test_private_names_stay_missing() -> None:
    assert not hasattr(UnwrittenModule("sgl_kernel"), "_version")


def test_sgl_kernel_offers_what_stubs_kernels_wrote() -> None:
    code = INSTALL + "import sgl_kernel.flash_attn as f\nanswer = f.flash_attn_with_kvcache.__module__"
    assert run(code).startswith("stubs.kernels.")


def test_real_package_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("who = 'real'")
    code = INSTALL + "import vllm\nanswer = [vllm.who, [s.name for s in supplied if s.name == 'vllm']]"
    assert run(code, tmp_path) == ["real", []]


def test_package_that_does_not_import_is_stood_in_for(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("import vllm.half\nraise OSError('no libcuda')")
    (tmp_path / "vllm" / "half.py").touch()
    code = INSTALL + "import vllm._custom_ops\nimport sys\n"
    code += "answer = [[s.reason for s in supplied if s.name == 'vllm'], 'vllm.half' in sys.modules]"
    assert run(code, tmp_path) == [["does not import"], False]


def test_modules_that_vllm_stand_in_lacks_stay_missing() -> None:
    code = INSTALL + "from importlib.util import find_spec\nanswer = find_spec('vllm.distributed') is None"
    assert run(code) is True


def test_without_stand_ins_nothing_is_supplied() -> None:
    code = "from stubs import imports\nfrom importlib.util import find_spec\n"
    code += "answer = [len(imports.install(stand_ins=False)), find_spec('sgl_kernel') is None]"
    assert run(code) == [0, True]


def test_second_install_answers_the_same() -> None:
    assert run(
        INSTALL + "import sys\nfound = len(sys.meta_path)\nagain = imports.install()\n"
        "answer = [again == supplied, len(sys.meta_path) == found]"
    ) == [True, True]


def test_too_late_is_an_error() -> None:
    code = "import sys, types\nsys.modules['sglang'] = types.ModuleType('sglang')\nfrom stubs import imports\n"
    code += "try:\n    imports.install()\nexcept RuntimeError as error:\n    answer = str(error)"
    assert run(code) == "sglang is imported already; expected imports.install() first, in a fresh process"


@no_gpu
def test_without_a_gpu_kernels_are_interpreted_and_nothing_is_compiled() -> None:
    code = INSTALL + "import os, torch\nf = lambda x: x\n"
    code += "answer = [os.environ['TRITON_INTERPRET'], torch.compile(f, dynamic=True) is f, "
    code += "torch.compile(dynamic=True)(f) is f, list(torch.cuda.get_device_capability()), torch.get_num_threads()]"
    assert run(code) == ["1", True, True, [9, 0], 1]


MASK_KERNEL = """
import torch, triton, triton.language as tl

@triton.jit
def copy(source, flag, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = (at < n) & (tl.load(flag) & (n > 1))
    tl.store(out + at, tl.load(source + at, mask=mask, other=0), mask=mask)

def run(flag):
    out = torch.full((4,), 9)
    copy[(1,)](torch.arange(4), torch.tensor([1]).to(flag), out, 3, BLOCK=4)
    return out.tolist()
"""


@no_gpu
def test_interpreter_takes_masks_made_of_loaded_flags(tmp_path: Path) -> None:
    (tmp_path / "mask_kernel.py").write_text(MASK_KERNEL)
    code = INSTALL + "import torch, mask_kernel\nanswer = mask_kernel.run(torch.bool)"
    assert run(code, tmp_path) == [0, 1, 2, 9]


@pytest.mark.parametrize(
    ("is_neox", "expected"),
    # A quarter turn at position 1 takes (a, b) to (-b, a); the fifth dimension is beyond rotary_dim.
    [(True, [-3.0, -4.0, 1.0, 2.0, 5.0]), (False, [-2.0, 1.0, -4.0, 3.0, 5.0])],
)
def test_rotary_embedding_turns_pairs(is_neox: bool, expected: list[float]) -> None:
    cache = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    query = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
    rotary_embedding(torch.tensor([1]), query, None, 5, cache, is_neox)
    assert query.tolist() == [expected]


@pytest.mark.release
@pytest.mark.parametrize("version", ["0.5.11", "0.5.15", "0.5.16", "0.5.23"])
def test_release_imports(version: str, target_folder: Callable[[str], Path]) -> None:
    code = INSTALL + f"import importlib\nfor name in {MODULES!r}: importlib.import_module('sglang.srt.' + name)\n"
    code += "import sglang\nanswer = sglang.__version__"
    assert run(code, target_folder(version)) == version
