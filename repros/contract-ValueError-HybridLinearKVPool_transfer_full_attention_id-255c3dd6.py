"""ValueError in HybridLinearKVPool._transfer_full_attention_id: layer_id=0 not in full attention layers: dict_keys

Found on pypi:0.5.17; seen on pypi:0.5.17; shown in 10 of 10 runs; sglang 0.5.17.
Found by: seamripper bench --bugs, for B45 (PR #22605, PR #23080)
Known: PR #22605, PR #23080; fixed in 0.5.18.
No standalone script can show this one (scripts do not have worlds with wrapper linear yet): seamripper replays it.
Exit status: 0 the bug does not show, 1 it shows, 125 cannot tell; on the sglang installed, or on $SEAMRIPPER_TARGET.
"""

import os
import shutil
import subprocess
import sys

FOUND_ON = "pypi:0.5.17"
SIGNATURE = "contract/ValueError/HybridLinearKVPool._transfer_full_attention_id"
PROGRAM = r"""{"seamripper":1,"seed":0,"world":{"context_len":64,"decode":"fa3","device":"cpu","dtype":"float32","head_dim":16,"layout":"contiguous","linear_before":1,"logit_cap":0,"max_running_requests":4,"max_total_tokens":512,"num_heads":2,"num_kv_heads":1,"num_layers":1,"overlap":1,"page_size":1,"prefill":"triton","radix_cache":0,"runner":"fake","sliding_window":0,"spec_algorithm":"","spec_draft_tokens":0,"spec_mode":"prefill","spec_steps":0,"spec_topk":0,"wrapper":"linear"}}"""

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
