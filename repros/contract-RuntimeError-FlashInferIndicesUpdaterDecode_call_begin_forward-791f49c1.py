"""RuntimeError in FlashInferIndicesUpdaterDecode.call_begin_forward: The expanded size of the tensor (3) must matc

Found on pypi:0.5.13; seen on pypi:0.5.13; shown in 10 of 10 runs; sglang 0.5.13.
Found by: seamripper bench --bugs, for B27 (PR #25124)
Known: PR #25124; fixed in 0.5.14.
No standalone script can show this one (it needs captured graphs, which scripts do not have): seamripper replays it.
Exit status: 0 the bug does not show, 1 it shows, 125 cannot tell; on the sglang installed, or on $SEAMRIPPER_TARGET.
"""

import os
import shutil
import subprocess
import sys

FOUND_ON = "pypi:0.5.13"
SIGNATURE = "contract/RuntimeError/FlashInferIndicesUpdaterDecode.call_begin_forward"
PROGRAM = r"""{"seamripper":1,"seed":0,"world":{"context_len":64,"decode":"flashinfer","device":"cpu","dtype":"float32","graph":1,"head_dim":16,"layout":"contiguous","logit_cap":0,"max_running_requests":3,"max_total_tokens":512,"num_heads":2,"num_kv_heads":1,"num_layers":1,"overlap":1,"page_size":1,"prefill":"triton","runner":"fake","sliding_window":0,"spec_algorithm":"","spec_draft_tokens":0,"spec_mode":"prefill","spec_steps":0,"spec_topk":0,"wrapper":"tbo"}}"""

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
