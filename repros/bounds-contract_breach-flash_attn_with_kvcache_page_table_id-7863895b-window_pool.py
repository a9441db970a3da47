"""flash_attn_with_kvcache: page_table of request 0: page id 512 at column 0, expected 0..256

Found on pypi:0.5.11; seen on pypi:0.5.11; shown in 10 of 10 runs; sglang 0.5.11.
Found by: seamripper bench --bugs, for B32 (PR #24617, issue #24402)
Known: PR #24617, issue #24402; fixed in 0.5.12.
No standalone script can show this one (scripts do not have worlds with alternate_layers 1 yet): seamripper replays it.
Exit status: 0 the bug does not show, 1 it shows, 125 cannot tell; on the sglang installed, or on $SEAMRIPPER_TARGET.
"""

import os
import shutil
import subprocess
import sys

FOUND_ON = "pypi:0.5.11"
SIGNATURE = "bounds/contract_breach/flash_attn_with_kvcache.page_table:id"
PROGRAM = r"""{"seamripper":1,"seed":0,"world":{"alternate_layers":1,"context_len":64,"decode":"triton","device":"cpu","dtype":"float32","head_dim":16,"layout":"descending","logit_cap":0,"max_running_requests":4,"max_total_tokens":512,"num_heads":2,"num_kv_heads":1,"num_layers":2,"overlap":1,"page_size":1,"prefill":"fa3","runner":"fake","sliding_window":256,"spec_algorithm":"EAGLE","spec_draft_tokens":2,"spec_mode":"prefill","spec_steps":1,"spec_topk":2,"window_tokens":256}}
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
