"""draft_extend_graph on TritonAttnBackend: the replayed graph gives other output than an eager run: own

Found on pypi:0.5.12; seen on pypi:0.5.12; shown in 10 of 10 runs; sglang 0.5.12.
Found by: seamripper bench --bugs, for B20 (PR #26651, PR #27738)
Known: PR #26651, PR #27738; fixed in 0.5.13.
No standalone script can show this one (it needs captured graphs, which scripts do not have): seamripper replays it.
Exit status: 0 the bug does not show, 1 it shows, 125 cannot tell; on the sglang installed, or on $SEAMRIPPER_TARGET.
"""

import os
import shutil
import subprocess
import sys

FOUND_ON = "pypi:0.5.12"
SIGNATURE = "state/replay_own_kv_counted_twice/TritonAttnBackend.draft_extend_graph"
PROGRAM = r"""{"seamripper":1,"seed":0,"world":{"context_len":64,"decode":"triton","device":"cpu","dtype":"float32","graph":2,"head_dim":16,"layout":"contiguous","logit_cap":0,"max_running_requests":4,"max_total_tokens":512,"num_heads":2,"num_kv_heads":1,"num_layers":1,"overlap":1,"page_size":1,"prefill":"torch_native","runner":"fake","sliding_window":0,"spec_algorithm":"EAGLE","spec_draft_tokens":2,"spec_mode":"decode","spec_steps":1,"spec_topk":1}}
{"op":"extend","rows":[{"request":0,"tokens":1}]}
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
