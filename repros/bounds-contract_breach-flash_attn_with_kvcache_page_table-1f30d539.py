"""flash_attn_with_kvcache: page_table of request 0: has 8 columns; 9 tokens in pages of 1 need 9

Found on pypi:0.5.23; seen on pypi:0.5.23; shown in 3 of 3 runs; sglang 0.5.23.
Found by: seamripper run --target pypi:0.5.23 --seed 0
Known: to be reported; the draft extend of fa3 near the context limit.
No standalone script can show this one (bounds/contract_breach/flash_attn_with_kvcache.page_table is a fault of a step on the draft model, which scripts do): seamripper replays it.
Exit status: 0 the bug does not show, 1 it shows, 125 cannot tell; on the sglang installed, or on $SEAMRIPPER_TARGET.
"""

import os
import shutil
import subprocess
import sys

FOUND_ON = "pypi:0.5.23"
SIGNATURE = "bounds/contract_breach/flash_attn_with_kvcache.page_table"
PROGRAM = r"""{"seamripper":1,"seed":0,"world":{"context_len":8,"decode":"fa3","device":"cpu","dtype":"float32","head_dim":16,"layout":"contiguous","logit_cap":0,"max_running_requests":4,"max_total_tokens":512,"num_heads":2,"num_kv_heads":1,"num_layers":1,"overlap":1,"page_size":1,"prefill":"torch_native","runner":"fake","sliding_window":0,"spec_algorithm":"EAGLE","spec_draft_tokens":4,"spec_mode":"decode","spec_steps":3,"spec_topk":1}}
{"op":"extend","rows":[{"request":0,"tokens":2}]}
{"accepts":[3],"draft_extend":0,"op":"verify","requests":[0]}
{"accepts":[1],"draft_extend":1,"op":"verify","requests":[0]}"""

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
