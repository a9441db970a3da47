"""Reports in compute-sanitizer's format, read: what was accessed, by which kernel, and how much of it becomes findings."""

from __future__ import annotations

import pytest

from fuzz.finding import Finding, Signature, Verdict
from fuzz.program import Decode, Extend, Idle, Program, Row
from fuzz.sanitizer_report import accesses, bare_name, findings, is_complete
from fuzz.trace import Trace
from stubs.world import World

PROGRAM = Program(World(), (Extend((Row(0, 3),)), Decode((0,)), Idle()))

# As version 12 and later print it: the kernel's name, an offset, and no file but for kernels with line tables.
WRITE = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at _fwd_grouped_kernel_stage1+0x1a30 in decode_attention.py:210
=========     by thread (31,0,0) in block (2,1,0)
=========     Address 0x7f2c0a000800 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2c0a000000 of size 2,048 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernelEx [0x3341b5] in libcuda.so.1
=========         Host Frame: launch in __triton_launcher.so
=========
========= ERROR SUMMARY: 1 error
"""
# As versions before it do: a device function with the kernel that called it, then a kernel alone.
OLDER = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 2 bytes
=========     at 0x30 in /src/cache.cuh:10:load(float const*)
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x87654320 is out of bounds
=========     and is 139,754,134,486,752 bytes before the nearest allocation at 0x7f1b5fa00000 of size 1,024 bytes
=========     Device Frame:load(float const*):0x30 in cache.cuh:10
=========     Device Frame:void flash::fwd<128, float>(Params):0x90 in flash.cuh:16
=========     Host Frame:cuLaunchKernel [0x2774ec]
=========
========= Invalid __shared__ write of size 16 bytes
=========     at misaligned_kernel():0x160 in demo.cu:6
=========     by thread (1,0,0) in block (0,0,0)
=========     Address 0x2 is misaligned
=========
========= Program hit unspecified launch failure (error 719) on CUDA API call to cudaDeviceSynchronize.
=========     Host Frame:cuCtxSynchronize [0x1]
=========
========= ERROR SUMMARY: 3 errors
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def test_one_write_in_full() -> None:
    (access,) = accesses(WRITE)
    assert (access.kind, access.kernel, access.size) == ("sanitizer_invalid_write", "_fwd_grouped_kernel_stage1", 4)
    assert (access.source, access.thread, access.block) == ("decode_attention.py:210", "(31,0,0)", "(2,1,0)")
    assert (access.address, access.what) == ("0x7f2c0a000800", "is out of bounds")
    assert access.nearest == "1 bytes after the nearest allocation at 0x7f2c0a000000 of size 2,048 bytes"
    assert access.host_frames == ("cuLaunchKernelEx [0x3341b5] in libcuda.so.1", "launch in __triton_launcher.so")
    assert access.excerpt.splitlines()[0] == "========= Invalid __global__ write of size 4 bytes"
    assert len(access.excerpt.splitlines()) == 8


def test_function_that_a_kernel_called_is_named_by_its_kernel() -> None:
    read, _ = accesses(OLDER)
    assert (read.kind, read.kernel, read.size) == ("sanitizer_invalid_read", "flash::fwd", 2)
    assert read.source == "/src/cache.cuh:10"


def test_other_memory_and_misalignment_have_kinds_of_their_own() -> None:
    _, write = accesses(OLDER)
    assert (write.kind, write.kernel) == ("sanitizer_misaligned_shared_write", "misaligned_kernel")
    assert write.source == "demo.cu:6"


@pytest.mark.parametrize(
    "location",
    [
        "at fill+0x30 in demo.cu:6",
        "at fill(int*):0x30 in demo.cu:6",
        "at void fill<4>(int*)+0x30 in demo.cu:6",
        "at 0x30 in demo.cu:6:fill(int*)",
    ],
)
def test_location_in_every_spelling(location: str) -> None:
    text = WRITE.replace("at _fwd_grouped_kernel_stage1+0x1a30 in decode_attention.py:210", location)
    (access,) = accesses(text)
    assert (access.kernel, access.source) == ("fill", "demo.cu:6")


@pytest.mark.parametrize("frame", ["void fwd<8>(int):0x90 in a.cuh:1", "a.cuh:1:void fwd<8>(int) [0x90]", "fwd+0x90"])
def test_frame_of_the_calling_kernel_in_every_spelling(frame: str) -> None:
    text = OLDER.replace("void flash::fwd<128, float>(Params):0x90 in flash.cuh:16", frame)
    assert accesses(text)[0].kernel == "fwd"


def test_output_of_the_target_among_the_lines_is_passed_over() -> None:
    lines = WRITE.splitlines()
    text = "\n".join([*lines[:3], "Loading safetensors", *lines[3:]])
    assert accesses(text) == accesses(WRITE)


def test_clean_report_has_nothing() -> None:
    assert (accesses(CLEAN), is_complete(CLEAN)) == ([], True)


def test_report_that_was_cut_off_is_not_complete() -> None:
    assert is_complete(WRITE[:300]) is False


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("void at::native::fill<4, at::Functor<float>, std::array<char*, 1ul>>(int, T2)", "at::native::fill"),
        ("void (anonymous namespace)::gather<float>(float*)", "gather"),
        ("store_cache(int*, unsigned long)", "store_cache"),
        ("_fwd_kernel", "_fwd_kernel"),
    ],
)
def test_bare_name(kernel: str, name: str) -> None:
    assert bare_name(kernel) == name


def test_finding_is_one_per_kind_and_kernel() -> None:
    twice = WRITE.replace("========= ERROR SUMMARY: 1 error\n", "") + WRITE.replace("(31,0,0)", "(32,0,0)")
    (finding,) = findings(twice, PROGRAM, None)
    assert (finding.verdict, str(finding.signature)) == (
        Verdict.BUG,
        "bounds/sanitizer_invalid_write/_fwd_grouped_kernel_stage1",
    )
    assert finding.title == "_fwd_grouped_kernel_stage1: invalid write of 4 bytes, says compute-sanitizer"
    assert finding.message == (
        "write of 4 bytes at 0x7f2c0a000800 is out of bounds, 1 bytes after the nearest allocation at 0x7f2c0a000000 "
        "of size 2,048 bytes; thread (31,0,0) of block (2,1,0)"
    )
    assert (finding.evidence["reports"], finding.evidence["line"]) == ("2", "decode_attention.py:210")
    assert finding.evidence["sanitizer"].startswith("========= Invalid __global__ write")


def test_step_is_the_one_that_broke_the_device() -> None:
    fault = Finding(Verdict.BUG, Signature("bounds", "cuda_fault", "A.b"), "", "", 1, "decode")
    (finding,) = findings(WRITE, PROGRAM, Trace((), (fault,), 1.0, "0.5.23"))
    assert (finding.op_index, finding.mode) == (1, "decode")


def test_where_nothing_broke_the_last_op_is_named() -> None:
    (finding,) = findings(WRITE, PROGRAM, Trace((), (), 1.0, "0.5.23"))
    assert (finding.op_index, finding.mode) == (2, "unknown")
