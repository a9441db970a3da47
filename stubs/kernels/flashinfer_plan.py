"""What a flashinfer wrapper plans: the kernel it compiles, the schedule it copies from the host, and packed masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from stubs.kernels import flashinfer_contract as contract
from stubs.kernels.contract import ContractBreach, require


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a kernel is compiled for and planned with. ``has_window`` and ``has_softcap`` are compiled in or out."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    page_size: int
    q_dtype: torch.dtype
    kv_dtype: torch.dtype
    window_left: int = -1
    softcap: float = 0.0

    @property
    def has_window(self) -> bool:
        return self.window_left >= 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batch as the host told it: cumulative query rows, cumulative pages (or rows of k), keys of each request."""

    queries: list[int]
    pages: list[int]
    lengths: list[int]

    @property
    def counts(self) -> list[int]:
        """Query rows of each request."""
        return contract.lengths_of(self.queries)


class PlannedKernel:
    """A compiled kernel with its integer workspace: what it was planned with last is what its next launch runs by.

    A captured launch keeps this object, so that a plan between capture and replay takes effect, as it does on a GPU.
    """

    def __init__(self, function: str, geometry: Geometry) -> None:
        self.function = function
        self.geometry = geometry
        self.schedule: Schedule | None = None

    def plan(
        self,
        float_workspace: torch.Tensor,
        int_workspace: torch.Tensor,
        pinned_workspace: torch.Tensor,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_lengths: torch.Tensor,
        rows: int,
        batch: int,
        *rest: object,
    ) -> Schedule:
        """Copy a schedule from host arrays: both ``indptr`` int32 [batch + 1], ``kv_lengths`` int32 [batch].

        SGLang's sync-free plan calls this with what it knows on the host; ``rest`` shapes the launch alone (heads,
        head dims, splitting) and is the wrapper's business. Raises ContractBreach.
        """
        for name, tensor in (
            ("qo_indptr_host", qo_indptr),
            ("kv_indptr_host", kv_indptr),
            ("kv_lens_host", kv_lengths),
        ):
            require(
                tensor.device.type == "cpu",
                self.function,
                name,
                f"is on {tensor.device}, expected on the host",
                rule="device",
            )
        queries = contract.check_indptr(self.function, "qo_indptr_host", qo_indptr, batch)
        pages = contract.check_indptr(self.function, "kv_indptr_host", kv_indptr, batch)
        lengths = contract.check_ints(self.function, "kv_lens_host", kv_lengths)
        require(
            len(lengths) == batch,
            self.function,
            "kv_lens_host",
            f"has {len(lengths)} entries for {batch} requests",
            rule="entries",
        )
        size = self.geometry.page_size
        for request, (held, length) in enumerate(zip(contract.lengths_of(pages), lengths, strict=True)):
            if held and -(-length // size) != held:  # an empty request counts one key on the host: flashinfer does
                detail = f"is {length}, kv_indptr_host says {held} pages of {size}"
                raise ContractBreach(self.function, "kv_lens_host", detail, request)
        require(queries[-1] <= rows, self.function, "qo_indptr_host", f"ends at {queries[-1]}, expected at most {rows}")
        held_pages = contract.lengths_of(pages)
        self.schedule = Schedule(
            queries, pages, [n if held else 0 for n, held in zip(lengths, held_pages, strict=True)]
        )
        return self.schedule


def dtype_of(given: str | torch.dtype) -> torch.dtype:
    """A torch dtype, which flashinfer also takes by name."""
    found = getattr(torch, given) if isinstance(given, str) else given
    assert isinstance(found, torch.dtype), f"{given!r} is no dtype"
    return found


def pack_mask(mask: torch.Tensor, queries: list[int], keys: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """A mask of a byte a cell as flashinfer stores it: (uint8 bits, int32 [requests + 1] first byte of each request).

    The first cell is the lowest bit; every request begins with a byte of its own.
    """
    cells = mask.flatten().cpu().numpy().astype(bool)
    packed, ends, start = [], [0], 0
    for n, length in zip(queries, keys, strict=True):
        bits = np.packbits(cells[start : start + n * length], bitorder="little")
        packed.append(bits)
        ends.append(ends[-1] + len(bits))
        start += n * length
    joined = np.concatenate(packed) if packed else np.zeros(0, dtype=np.uint8)
    return torch.from_numpy(joined).to(mask.device), torch.tensor(ends, dtype=torch.int32, device=mask.device)


def unpack_mask(
    function: str, packed: torch.Tensor, starts: torch.Tensor, queries: list[int], keys: list[int]
) -> torch.Tensor:
    """What each query sees, bool [requests, most queries, most keys], from packed bits; other cells are False."""
    seen = torch.zeros(len(queries), max(queries, default=0), max(keys, default=0), dtype=torch.bool)
    firsts = contract.check_ints(function, "mask_indptr", starts)
    require(
        len(firsts) > len(queries),
        function,
        "mask_indptr",
        f"has {len(firsts)} entries for {len(queries)} requests",
        rule="entries",
    )
    bits = packed.cpu().numpy()
    for request, (n, length) in enumerate(zip(queries, keys, strict=True)):
        first, size = firsts[request], -(-n * length // 8)
        if first < 0 or first + size > len(bits):
            detail = f"starts at byte {first}; {n} queries over {length} keys take {size} of the {len(bits)} there are"
            raise ContractBreach(function, "mask_indptr", detail, request)
        cells = np.unpackbits(bits[first : first + size], bitorder="little", count=n * length)
        seen[request, :n, :length] = torch.from_numpy(cells.reshape(n, length).astype(bool))
    return seen
