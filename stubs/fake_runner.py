"""FakeModelRunner: an honest plain object around SGLang's real configs, pools and layers, without a model.

Every field is listed; nothing answers for a name that is not here. A release that reads another one raises
AttributeError on this class, which the contract oracle reports as a stub_gap with the field and its reader.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stubs import sglang, sglang_latent, sglang_linear, sglang_window
from stubs.guards import Guard, surround
from stubs.kv_memory import buffer_names, kv_places
from stubs.world import World


class FakeModelRunner:
    """What SGLang's attention code reads off a ModelRunner. ``build_fake_server`` makes them."""

    def __init__(self, world: World, server_args: Any, model_config: Any, request_pool: Any, kv_pool: Any) -> None:
        # Ours
        self.world = world
        self.guards = [guard for pool, _ in kv_places(kv_pool) for guard in guarded(pool, buffer_names(pool))]
        # Configuration
        self.server_args = server_args
        self.model_config = model_config
        self.spec_algorithm = sglang.spec_algorithm(world.spec_algorithm)
        self.device = world.device
        self.gpu_id = 0
        self.dtype = sglang.DTYPES[world.dtype]
        self.kv_cache_dtype = sglang.kv_torch_dtype(world)
        self.kv_cache_dtype_str = world.kv_dtype
        self.page_size = world.page_size
        # Of a model with chunks SGLang takes their size for its window's, too: resolve_sliding_window_size.
        self.sliding_window_size = world.local_span or None
        self.attention_chunk_size = model_config.attention_chunk_size
        self.prefill_attention_backend_str = world.prefill
        self.decode_attention_backend_str = world.decode
        self.draft_attention_backend = None
        # Placement: one process, one rank
        self.is_draft_worker = False
        self.tp_size = 1
        self.attn_cp_size = 1
        self.dcp_size = 1
        self.attn_dcp_size = 1  # so named in 0.5.21 alone
        self.dcp_rank = 0
        self.ps = sglang.one_rank_parallel_state()
        self.pp_group = OneStage()
        # Model kinds that this one is not
        self.is_hybrid_swa = self.is_hybrid = sglang_window.is_hybrid(model_config)
        self.is_hybrid_swa_compress = False
        self.use_mla_backend = sglang_latent.is_latent(model_config)
        self.init_new_workspace = False
        self.plan_stream_for_flashinfer = True  # a CUDA stream that SGLang makes where there is none, and nobody uses
        self.model_is_mrope = False
        self.use_ngram_embedding = False
        self.ngram_embedding_manager = sglang.no_ngram_embedding()
        self.lora_manager = None
        self.hybrid_gdn_config = None
        self.kimi_linear_config = None
        self.linear_attn_model_spec = None
        # Asked for up to 0.5.15, later of the model config
        self.mamba2_config = self.mambaish_config = sglang_linear.mamba_config(model_config)
        # Graphs: none before they are captured
        self.graph_runner = None
        self.decode_cuda_graph_runner = None
        self.prefill_cuda_graph_runner: Any = None
        self.graph_shared_output = None  # of logits, which nothing here computes
        self.canary_manager = None
        # Memory
        self.max_running_requests = world.max_running_requests
        self.req_to_token_pool = request_pool
        self.token_to_kv_pool = kv_pool
        self.token_to_kv_pool_allocator: Any = None
        self.kv_index_translator: Any = None
        # Attention
        self.model = torch.nn.ModuleList()  # its attention layers are all there is of a model
        self.attn_backend: Any = None
        self.radix_layers: list[Any] = []

    def attn_tp_sequence_sharded(self, num_tokens: int) -> bool:
        """Whether a forward's rows are spread over ranks: there is one."""
        return False

    def prepare_dummy_forward_batch(self, forward_batch: Any) -> Any:
        """A graph's batch with what a model of some kinds wants of it: this one is none of those."""
        return forward_batch

    def decode_num_tokens_per_req(self, *, num_draft_tokens: int | None = None) -> int:
        """Rows of q per request in a decode step: the draft width where drafts are verified, else 1."""
        if not self.world.is_speculative:
            return 1
        return self.world.spec_draft_tokens if num_draft_tokens is None else num_draft_tokens


@dataclass(frozen=True, slots=True)
class OneStage:
    """The group of a pipeline that has one stage."""

    is_first_rank: bool = True
    is_last_rank: bool = True


def guarded(owner: Any, names: Sequence[str]) -> list[Guard]:
    """Guards round the owner's buffers, or none where each tensor is an allocation of its own.

    That is what a memory checker asks for, and guards would hide from it what lands right behind a buffer.
    """
    return [] if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") else surround(owner, names)
