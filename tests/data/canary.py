"""decode on TorchNativeAttnBackend: wrong output

Found on pypi:0.5.23; seen on pypi:0.5.23; shown in 10 of 10 runs; sglang 0.5.23.
Under SGLang's own ModelRunner: shown in 3 of 3 runs.
Found by: seamripper run --target pypi:0.5.23 --seed 4 --pair triton:torch_native
Exit status: 0 the bug does not show, 1 it shows, 125 cannot tell (it cannot start, or something else went wrong).
"""

import inspect
import os
import pathlib
import sys
import tempfile
import traceback
from importlib import import_module
from importlib.util import find_spec

import torch

FOUND_ON = "pypi:0.5.23"
SIGNATURE = "numeric/wrong_output/TorchNativeAttnBackend.forward_decode"
PROGRAM = r"""{"seamripper":1,"seed":0,"world":{"context_len":64,"decode":"torch_native","device":"cpu","dtype":"float32","head_dim":16,"layout":"contiguous","logit_cap":0,"max_running_requests":4,"max_total_tokens":512,"num_heads":2,"num_kv_heads":1,"num_layers":1,"overlap":1,"page_size":1,"prefill":"triton","runner":"fake","sliding_window":0,"spec_algorithm":"","spec_draft_tokens":0,"spec_mode":"prefill","spec_steps":0,"spec_topk":0}}
{"op":"extend","rows":[{"request":0,"tokens":3}]}
{"op":"decode","requests":[0]}"""
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PORT = 20000 + os.getpid() % 20000  # for torch.distributed: a world of one process
MODEL = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_attention_heads": 2,
"num_key_value_heads": 1, "head_dim": 16, "num_hidden_layers": 1, "vocab_size": 128, "intermediate_size": 32,
"max_position_embeddings": 64}"""
FLAGS = """--model-path MODEL --load-format dummy --dtype float32 --attention-backend triton --prefill-attention-backend triton
--decode-attention-backend torch_native --page-size 1 --context-length 64 --max-running-requests 4
--max-total-tokens 512 --triton-attention-num-kv-splits 2 --skip-tokenizer-init --disable-cuda-graph"""


def get(place, default=None):
    """``place`` in sglang.srt, or ``default`` in releases that lack it."""
    module, _, name = f"sglang.srt.{place}".rpartition(".")
    return getattr(import_module(module), name, default) if find_spec(module) else default


def call(function, *given, **offered):
    """Call with those keyword arguments that this release takes; every parallel rank is 0 of 1."""
    known, parallel = inspect.signature(function).parameters, ("tp", "pp", "dp", "dcp", "attn", "moe", "gpu")
    single = {name: int(name.endswith("_size")) for name in known if name.startswith(parallel)}
    return function(*given, **single, **{name: value for name, value in offered.items() if name in known})


def start():
    """SGLang's own ModelRunner on a tiny Llama, and the wrapper around its two attention backends."""
    folder = tempfile.mkdtemp()
    pathlib.Path(folder, "config.json").write_text(MODEL)
    args = get("server_args.prepare_server_args")(f"{FLAGS} --device {DEVICE}".replace("MODEL", folder).split())
    config = get("configs.model_config.ModelConfig").from_server_args(args)
    publish = get("runtime_context.publish") or get("server_args.set_global_server_args_for_scheduler")
    call(publish, args, role="scheduler", ranks=get("runtime_context.SpawnRanks", dict)(world_rank=0, gpu_id=0))
    start_groups = get("distributed.bootstrap.init_parallel_runtime", lambda: None)  # from 0.5.21
    call(start_groups, server_args=args, device=DEVICE, dist_port=PORT)
    call(get("distributed.bootstrap.init_layer_runtime", lambda: None), model_config=config)
    state = call(get("distributed.parallel_state_wrapper.ParallelState", lambda: None))
    runner_class = get("model_executor.model_runner.ModelRunner")
    runner = call(runner_class, config, 0.3, nccl_port=PORT, server_args=args, ps=state)
    runner.alloc_memory_pool()
    runner.init_attention_backends()
    runner.init_cuda_graphs()
    for buffer in runner.token_to_kv_pool.k_buffer + runner.token_to_kv_pool.v_buffer:
        buffer.fill_(1000.0)  # a read of a slot that nobody wrote shows
    return runner


def step(runner, mode, rows, prefix, own, host=True):
    """One batch through all attention layers: row rows[i] holds slots own[i], all but the first prefix[i] new."""
    for row, slots in zip(rows, own):
        runner.req_to_token_pool.req_to_token[row, : len(slots)] = torch.tensor(slots, dtype=torch.int32)
    new = [slot for slots, before in zip(own, prefix) for slot in slots[before:]]
    lens = prefix if mode == "TARGET_VERIFY" else [len(slots) for slots in own]
    ints = dict(seq_lens=lens, orig_seq_lens=lens, req_pool_indices=rows, input_ids=[0] * len(new), out_cache_loc=new)
    fields = {name: torch.tensor(value, dtype=torch.int64, device=DEVICE) for name, value in ints.items()}
    fields |= dict(seq_lens_cpu=torch.tensor(lens) if host else None, seq_lens_sum=sum(lens) if host else None)
    fields |= dict(prefix_lens=prefix, extend_lens=[len(slots) - before for slots, before in zip(own, prefix)])
    fields |= dict(extend_num_tokens=len(new), extend_logprob_start_lens=[0] * len(rows), reqs=[], device=DEVICE)
    for name in ("req_to_token_pool", "token_to_kv_pool_allocator", "model_config", "spec_algorithm"):
        fields[name] = getattr(runner, name)
    forward_mode = get("model_executor.forward_batch_info.ForwardMode")["DECODE" if mode == "TARGET_VERIFY" else mode]
    batch = get("managers.schedule_batch.ScheduleBatch")(forward_mode=forward_mode, **fields)
    init_new = get("model_executor.forward_batch_info.ForwardBatch").init_new
    return forward(runner, call(init_new, batch, runner, return_hidden_states_before_norm=False))


def forward(runner, batch):
    """Plan the metadata, then run each attention layer on random q, k and v; the batch and (layer, q, k, v, out)."""
    taps, backend = [], runner.attn_backend
    context, record = (get("model_executor.forward_context." + name) for name in ("forward_context", "ForwardContext"))
    torch.manual_seed(0)
    with torch.no_grad(), context(record(attn_backend=backend)):
        backend.init_forward_metadata(batch)
        for layer in (module for module in runner.model.modules() if type(module).__name__ == "RadixAttention"):
            widths = [n * layer.head_dim for n in (layer.tp_q_head_num, layer.tp_k_head_num, layer.tp_v_head_num)]
            q, k, v = (torch.randn(len(batch.positions), n).to(DEVICE, torch.float32) for n in widths)
            taps.append((layer, 4 * q, k, v, layer(4 * q, k, v, batch)))  # wide: far from uniform
    return batch, taps


def is_wrong(taps, pool, prefix, own):
    """Whether an output is further from float64 attention over the pool than 1e-05 (atol = rtol), or NaN."""
    for index, (layer, q, _, _, out) in enumerate(taps):
        q, out = (tensor.double().view(-1, layer.tp_q_head_num, layer.head_dim) for tensor in (q, out))
        start, group = 0, layer.tp_q_head_num // layer.tp_k_head_num
        for slots, before in zip(map(list, own), prefix):
            end = start + len(slots) - before
            k, v = (b[index][slots].double().repeat_interleave(group, 1) for b in (pool.k_buffer, pool.v_buffer))
            scores = torch.einsum("qhd,khd->hqk", q[start:end], k) * layer.scaling
            query, key = torch.arange(before, len(slots))[:, None], torch.arange(len(slots))[None]
            hidden = key > query
            wanted = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden.to(DEVICE), float("-inf")).softmax(-1), v)
            if not torch.allclose(out[start:end], wanted, rtol=1e-05, atol=1e-05):
                return True
            start = end
    return False


if __name__ == "__main__":
    try:
        runner = start()
        step(runner, "EXTEND", rows=[4], prefix=[0], own=[range(1, 4)])
        batch, taps = step(runner, "DECODE", rows=[4], prefix=[3], own=[range(1, 5)])
        sys.exit(int(is_wrong(taps, runner.token_to_kv_pool, [3], [range(1, 5)])))
    except Exception:
        traceback.print_exc()
        sys.exit(125)
