"""Errors that leave a GPU's context broken: every later call in the process fails with the same one.

Told by CUDA's own texts, which torch ("CUDA error: ...", an AcceleratorError), Triton ("Triton Error [CUDA]: ...") and
kernel libraries pass on. Errors that CUDA recovers from (a bad launch configuration, out of memory) are not among them.
"""

from __future__ import annotations

import re

# From the CUDA driver API's description of CUresult: the errors of which it says that the process is left in an
# inconsistent state and must be relaunched, by the oracle that they belong to.
_TEXTS = {
    "bounds": (
        "an illegal memory access was encountered",  # 700
        "hardware stack error",  # 714
        "misaligned address",  # 716
        "operation not supported on global/shared address space",  # 717
        "invalid program counter",  # 718
    ),
    "contract": (
        "the launch timed out and was terminated",  # 702
        "device-side assert triggered",  # 710
        "an illegal instruction was encountered",  # 715
        "unspecified launch failure",  # 719
    ),
}


def broken_by(error: BaseException) -> tuple[str, str] | None:
    """(oracle, CUDA's text) of an error after which nothing more can be run in this process, else None."""
    message = str(error)
    if re.search("cuda", message, re.IGNORECASE) is None:
        return None
    for oracle, texts in _TEXTS.items():
        for text in texts:
            if text in message:
                return oracle, text
    return None
