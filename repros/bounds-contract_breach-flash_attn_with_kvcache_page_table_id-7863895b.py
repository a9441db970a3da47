"""flash_attn_with_kvcache: page_table of request 0: page id 33 at column 0, expected 0..16

Found on pypi:0.5.23; seen on pypi:0.5.23; shown in 10 of 10 runs; sglang 0.5.23.
Under SGLang's own ModelRunner: cannot be tried (unsupported: the tiny Llama of the real runner has no kv_lora_rank 256; use the fake runner).
Found by: seamripper run --target pypi:0.5.23 --seed 5
Known: to be reported; the verify of a tree with latent attention on pages of more than one token.
No standalone script can show this one (scripts do not have worlds with kv_lora_rank 256 yet): seamripper replays it.
Exit status: 0 the bug does not show, 1 it shows, 125 cannot tell; on the sglang installed, or on $SEAMRIPPER_TARGET.
"""

import os
import shutil
import subprocess
import sys

FOUND_ON = "pypi:0.5.23"
SIGNATURE = "bounds/contract_breach/flash_attn_with_kvcache.page_table:id"
PROGRAM = r"""{"seamripper":1,"seed":0,"world":{"context_len":64,"decode":"cutedsl_mla","device":"cpu","dtype":"float32","head_dim":288,"kv_lora_rank":256,"layout":"contiguous","logit_cap":0,"max_running_requests":4,"max_total_tokens":512,"num_heads":2,"num_kv_heads":1,"num_layers":1,"overlap":1,"page_size":32,"prefill":"fa3","runner":"fake","sliding_window":0,"spec_algorithm":"EAGLE","spec_draft_tokens":2,"spec_mode":"prefill","spec_steps":1,"spec_topk":2}}
{"op":"extend","rows":[{"request":0,"tokens":1}]}
{"accepts":[1],"draft_extend":0,"op":"verify","requests":[0]}"""

if __name__ == "__main__":
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    seamripper = shutil.which("seamripper", path=places)
    if seamripper is None:
        print("seamripper is not installed; where it is: seamripper replay", __file__)
        sys.exit(125)
    target = os.environ.get("SEAMRIPPER_TARGET", "installed")
    command = [seamripper, "replay", __file__, "--target", target, "--python", sys.executable]
    told = subprocess.run(command, check=False)
    sys.exit(told.returncode if told.returncode in (0, 1) else 125)
