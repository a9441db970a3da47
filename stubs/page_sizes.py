"""The page sizes of backends that take only some: SGLang serves them with another one where it is given any else."""

from __future__ import annotations

# What the argument checks of releases 0.5.11 to 0.5.23 let stand; 128, which the later ones take too, is larger than
# the prompts that programs have.
PAGE_SIZES_OF = {
    "trtllm_mha": (16, 32, 64),
    "trtllm_mla": (32, 64),
    "cutedsl_mla": (32, 64),
    "flashmla": (64,),
    "cutlass_mla": (128,),
}


def smallest_page(*backends: str) -> int:
    """The smallest page size that all of ``backends`` take."""
    return max(PAGE_SIZES_OF.get(name, (1,))[0] for name in backends)


def unshared(one: str, other: str) -> str:
    """Why no page size serves both, in words; "" where one does."""
    if one not in PAGE_SIZES_OF or other not in PAGE_SIZES_OF or set(PAGE_SIZES_OF[one]) & set(PAGE_SIZES_OF[other]):
        return ""
    takes = (f"{name} takes {', '.join(map(str, PAGE_SIZES_OF[name]))}" for name in (one, other))
    return f"no page size serves both: {'; '.join(takes)}"
