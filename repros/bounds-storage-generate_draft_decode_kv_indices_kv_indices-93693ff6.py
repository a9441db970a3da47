"""generate_draft_decode_kv_indices writes outside the storage through kv_indices

Found on pypi:0.5.12; seen on pypi:0.5.12; shown in 10 of 10 runs; sglang 0.5.12.
Found by: seamripper bench --bugs, for B25 (PR #27338, issue #26340)
Known: PR #27338, issue #26340; from 0.5.13 the buffer has a row for each branch.
No standalone script can show this one (it needs captured graphs, which scripts do not have): seamripper replays it.
Exit status: 0 the bug does not show, 1 it shows, 125 cannot tell; on the sglang installed, or on $SEAMRIPPER_TARGET.
"""

import os
import shutil
import subprocess
import sys

FOUND_ON = "pypi:0.5.12"
SIGNATURE = "bounds/storage/generate_draft_decode_kv_indices.kv_indices"
PROGRAM = r"""{"seamripper":1,"seed":0,"world":{"context_len":8,"decode":"flashinfer","device":"cpu","dtype":"float32","graph":2,"head_dim":16,"layout":"contiguous","logit_cap":0,"max_running_requests":4,"max_total_tokens":512,"num_heads":2,"num_kv_heads":1,"num_layers":1,"overlap":1,"page_size":1,"prefill":"torch_native","runner":"fake","sliding_window":0,"spec_algorithm":"EAGLE","spec_draft_tokens":2,"spec_mode":"decode","spec_steps":3,"spec_topk":2}}
{"op":"extend","rows":[{"request":0,"tokens":1},{"request":1,"tokens":1},{"request":2,"tokens":2}]}
{"accepts":[1,1,1],"draft_decode":1,"draft_extend":0,"op":"verify","requests":[0,1,2]}"""

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
