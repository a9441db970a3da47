"""The static inputs that a graph reads: filled before each replay, padded behind the live rows as SGLang pads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from stubs import sglang_graph


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """The static inputs, as long as the largest batch: int64 but for ``seq_lens``, whose dtype is the release's.

    ``req_pool_indices``, ``seq_lens``, ``seq_lens_cpu`` (on the host), ``extend_seq_lens`` (int32): a request each;
    the others: a token each. ``mamba_track_indices`` is one that SGLang's view asks for. ``encoder_lens`` (int32), of models
    that have encoders: those of padding keep what was there, 0 at first.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    out_cache_loc: torch.Tensor
    req_pool_indices: torch.Tensor
    seq_lens: torch.Tensor
    seq_lens_cpu: torch.Tensor
    extend_seq_lens: torch.Tensor
    encoder_lens: torch.Tensor | None = None
    mamba_track_indices: None = None

    @classmethod
    def make(
        cls,
        requests: int,
        tokens: int,
        width: int,
        fill: int,
        device: str,
        locations: int | None = None,
        *,
        has_encoder: bool = False,
    ) -> Buffers:
        """``locations``: as many as tokens, where not given."""

        def zeros(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int64, device=device)

        dtype = sglang_graph.lengths_dtype()
        return cls(
            input_ids=zeros(tokens),
            positions=zeros(tokens),
            out_cache_loc=zeros(locations or tokens),
            req_pool_indices=zeros(requests),
            seq_lens=torch.full((requests,), fill, dtype=dtype, device=device),
            seq_lens_cpu=torch.full((requests,), fill, dtype=dtype),
            extend_seq_lens=torch.full((requests,), width, dtype=torch.int32, device=device),
            encoder_lens=torch.zeros(requests, dtype=torch.int32, device=device) if has_encoder else None,
        )

    def pad(self, fill: int, width: int) -> None:
        """Make every row one of padding. Input ids stay as they were, as in SGLang: nobody reads them."""
        for tensor in (self.positions, self.out_cache_loc, self.req_pool_indices):
            tensor.zero_()
        self.seq_lens.fill_(fill)
        self.seq_lens_cpu.fill_(fill)
        self.extend_seq_lens.fill_(width)

    def fill(self, batch: Any) -> None:
        """The live rows of ``batch``, which come first."""
        size, tokens = batch.batch_size, len(batch.positions)
        self.req_pool_indices[:size].copy_(batch.req_pool_indices)
        self.seq_lens[:size].copy_(batch.seq_lens)
        if batch.seq_lens_cpu is not None:
            self.seq_lens_cpu[:size].copy_(batch.seq_lens_cpu)
        if batch.input_ids is not None:  # a draft's first ones are drawn from what it starts with
            self.input_ids[:tokens].copy_(batch.input_ids)
        self.positions[:tokens].copy_(batch.positions)
        self.out_cache_loc[: len(batch.out_cache_loc)].copy_(batch.out_cache_loc)
        if self.encoder_lens is not None:
            self.encoder_lens[:size].copy_(batch.encoder_lens)
