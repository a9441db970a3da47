"""SGLang's own runner of prefill steps in graphs, in its "full" kind, which holds a whole step: started on a fake runner.

Its methods are the release's: which batches it takes, the batch that it captures with, the padding of the one that it
replays. What its constructor makes of a model, a GPU and other ranks is set here for a server that has one of each.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from stubs import sglang
from stubs.refusal import Refused
from stubs.sglang import accepted, find, load
from stubs.sglang_imports import PYTHON_OPERATORS

_RUNNER = "sglang.srt.model_executor.runner.prefill_cuda_graph_runner"


def refuse_unplanned(backend: Any) -> None:
    """Raise Refused where the half for prefill has no plan of its own for any graph."""
    base = load(f"{sglang.ATTENTION}.base_attn_backend").AttentionBackend
    name = "init_forward_metadata_out_graph"
    if getattr(type(backend), name) is getattr(base, name):
        raise Refused(f"{type(backend).__name__} has no {name} of its own: it plans no graph")


def token_counts(server_args: Any, tokens: int, requests: int, context_len: int) -> list[int]:
    """The counts of tokens that the release captures at, rising, up to ``tokens``.

    None beyond what so many requests of a context each have, where the release looks at that (0.5.17 on).
    """
    listed = find("sglang.srt.arg_groups.cuda_graph_hook:generate_prefill_cuda_graph_batch_sizes")
    listed = listed or server_args._generate_prefill_cuda_graph_batch_sizes
    capture = find("sglang.srt.model_executor.model_runner_components.cuda_graph_setup:capture_prefill_graph")
    bounded = capture is not None and "max_capture_tokens" in inspect.getsource(capture)
    most = requests * context_len if bounded else tokens
    return [count for count in sorted(listed(tokens)) if count <= most]


def start(runner: Any, backend: Any, counts: list[int], layers: Callable[..., Any]) -> Any:
    """SGLang's runner over a fake one: ``backend`` keeps what it captures, ``layers`` is the model's body.

    ``counts`` as ``token_counts`` has them; as many requests as the server runs.
    """
    cls = type("PrefillRunner", (load(_RUNNER).PrefillCudaGraphRunner,), {"__module__": __name__})
    own = cls.__new__(cls)
    values = _settings(runner) | _buffers(runner, counts)
    for name, value in values.items():
        setattr(own, name, value)
    own.backend, own.layer_model = backend, SimpleNamespace(forward=layers)
    return own


# Of a server without the features, ranks, kinds of model and of graph that these are about.
_OFF = (
    *("is_multimodal", "is_dsv41_model", "enable_lora", "enable_pdmux", "mamba_track_enabled"),
    *("enable_return_hidden_states", "capture_return_pooled_hidden_states", "has_mha_companion_layers"),
    *("require_mlp_tp_gather", "require_attn_tp_gather", "prefer_eager_mixed_prefill"),
    *("_capture_lora", "_capture_chunked_prefix", "_qwen_bcg_hc_sidechannel", "_qwen_bcg_mtp_draft"),
    *("enable_cp_bcg_capture", "enable_cp_v2_bcg_capture", "use_captured_attn_metadata"),
)
_ABSENT = (
    *("quant_config", "dsa_indexers", "max_context_size", "max_seq_len", "prefill_cp_bcg_input"),
    *("static_draft_hidden_states", "attn_metadata_buffers"),
)
_OF_ONE = ("tp_size", "dp_size", "num_dp_ranks", "pp_size")


def _settings(runner: Any) -> dict[str, Any]:
    """What the constructor reads off a server of one rank, one plain model and no LoRA."""
    requests = runner.world.max_running_requests
    mode = load("sglang.srt.model_executor.forward_batch_info")
    plugin = load("sglang.srt.batch_overlap.two_batch_overlap").TboCudaGraphRunnerPlugin
    return {
        **dict.fromkeys(_OFF, False),
        **dict.fromkeys(_ABSENT),
        **dict.fromkeys(_OF_ONE, 1),
        "model_runner": runner,
        "device": runner.device,
        "max_bs": requests,
        "prefill_backend_name": "full",
        "capture_forward_mode": mode.ForwardMode.EXTEND,
        "capture_hidden_mode": mode.CaptureHiddenMode.NULL,
        "return_hidden_states_mode": mode.CaptureHiddenMode.NULL,
        "tbo_plugin": plugin(),
        "attention_layers": list(runner.model),
        "mha_companion_layers": [None] * len(runner.model),
        "moe_layers": [],
        "moe_fusions": [],
        "_is_full_backend": True,
        "_capture_req_slots": requests,
        "_full_cg_seq_lens_cpu": torch.zeros(requests, dtype=torch.int64),
        "_backend_can_run_prefill_cuda_graph": getattr(runner.attn_backend, "can_run_prefill_cuda_graph", None),
    }


def _buffers(runner: Any, counts: list[int]) -> dict[str, Any]:
    """The static tensors: a token each in the release's registry, and those of requests, int64 [requests]."""
    requests, tokens = runner.world.max_running_requests, counts[-1]
    module = load(_RUNNER)
    sizes = {
        "device": runner.device,
        "max_bs": requests,
        "cache_loc_dtype": torch.int64,
        "is_multimodal": False,
        "hidden_size": runner.model_config.hidden_size,
    }
    inputs = module.PrefillInputBuffers
    source = inputs.create(**sizes, max_num_tokens=tokens, dtype=runner.dtype, enable_mamba_track=False)
    registry = module.build_prefill_registry
    optional = accepted(registry, register_input_embeds=False, enable_num_token_non_padded=True, share_pool=False)
    return {
        "capture_num_tokens": counts,
        "max_num_tokens": tokens,
        "buffers": source,
        "buffer_registry": registry(**sizes, max_num_token=tokens, embed_dtype=runner.dtype, source=source, **optional),
        "_prefill_static_buffers": {
            name: torch.zeros(requests, dtype=torch.int64, device=runner.device)
            for name in module._PREFILL_STATIC_FIELDS
        },
    }


@contextlib.contextmanager
def operators_in_python() -> Iterator[None]:
    """Layers' operators that SGLang registers for a GPU alone, and writes in Python, are what they are made of.

    A graph has no node for such an operator: those of its parts are recorded.
    """
    module = load("sglang.srt.layers.radix_attention")
    with contextlib.ExitStack() as stack:
        for name, thing in vars(module).copy().items():
            written = PYTHON_OPERATORS.get(name) if isinstance(thing, torch._ops.OpOverloadPacket) else None
            if written is not None:
                stack.enter_context(patch.object(module, name, written))
        yield
