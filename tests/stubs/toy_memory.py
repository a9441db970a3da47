"""SGLang's pools and allocator in a few lines, so that slots and batches can be tested without SGLang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stubs import sglang_batch, sglang_memory
from stubs.graphs import Graphs
from stubs.world import World


class ToyRows:
    """ReqToTokenPool: row 0 is padding; a freed row goes to the end of the list."""

    def __init__(self, world: World) -> None:
        self.req_to_token = torch.zeros(world.max_running_requests + 1, world.context_len, dtype=torch.int32)
        self.free_rows = list(range(1, world.max_running_requests + 1))

    def alloc(self, records: list[Any]) -> list[int]:
        rows = [self.free_rows.pop(0) for _ in records]
        for record, row in zip(records, rows, strict=True):
            record.row = row
        return rows

    def free(self, record: Any) -> None:
        self.free_rows.append(record.row)


class ToyAllocator:
    """Hands out whole pages from the front of ``free_pages`` and takes them back at its end. Page 0 is padding."""

    def __init__(self, world: World) -> None:
        self.page = world.page_size
        self.free_pages = torch.arange(1, world.pool_pages + 1)

    def alloc(self, tokens: int) -> torch.Tensor | None:
        assert tokens % self.page == 0
        taken, self.free_pages = self.free_pages[: tokens // self.page], self.free_pages[tokens // self.page :]
        return (taken[:, None] * self.page + torch.arange(self.page)).flatten()

    def free(self, slots: torch.Tensor) -> None:
        self.free_pages = torch.cat([self.free_pages, torch.unique(slots // self.page)])


def toy_runner(world: World, rows: ToyRows, allocator: ToyAllocator, layers: int = 1) -> Any:
    shape = (world.max_total_tokens + world.page_size, world.num_kv_heads, world.head_dim)
    k, v = ([torch.zeros(shape) for _ in range(layers)] for _ in range(2))
    return SimpleNamespace(
        req_to_token_pool=rows,
        token_to_kv_pool_allocator=allocator,
        token_to_kv_pool=SimpleNamespace(k_buffer=k, v_buffer=v),
        model_config=SimpleNamespace(hidden_size=8),
        attn_backend=None,
        server_args=None,
    )


def toy_server(world: World) -> Any:
    """A server without SGLang: the target, and with speculation a draft runner of one layer."""
    rows, allocator = ToyRows(world), ToyAllocator(world)
    draft = toy_runner(world, rows, allocator) if world.is_speculative else None
    target = toy_runner(world, rows, allocator, world.num_layers)
    return SimpleNamespace(world=world, target=target, draft=draft, draft_decode=None, graphs=Graphs())


def without_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests and batches are plain namespaces; rows of KV are moved by indexing."""

    def move(pool: Any, to: torch.Tensor, source: torch.Tensor) -> None:
        for buffer in (*pool.k_buffer, *pool.v_buffer):
            buffer[to] = buffer[source]

    monkeypatch.setattr(sglang_memory, "move_kv", move)

    def request(number: int, prompt: list[int], vocab: int) -> Any:
        return SimpleNamespace(prompt=prompt, multimodal_inputs=None)

    monkeypatch.setattr(sglang_batch, "request", request)
    monkeypatch.setattr(sglang_batch, "forward_mode", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr(sglang_batch, "schedule_batch", lambda runner, world, **fields: SimpleNamespace(**fields))
    monkeypatch.setattr(sglang_batch, "forward_batch", lambda batch, runner: batch)
