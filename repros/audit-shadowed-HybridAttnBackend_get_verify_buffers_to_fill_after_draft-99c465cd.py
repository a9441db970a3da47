"""HybridAttnBackend.get_verify_buffers_to_fill_after_draft is shadowed: the inherited default (def) answers instead o

Found on pypi:0.5.16, by reading its source.
Found by: seamripper bench --bugs, for B05 (PR #32920)
Known: PR #32920; fixed in 0.5.17.
Nothing is run to tell it: seamripper reads the source.
Exit status: 0 the gap is not there, 1 it is, 125 cannot tell; in the sglang installed, or in $SEAMRIPPER_TARGET.
"""

import os
import shutil
import subprocess
import sys

FOUND_ON = "pypi:0.5.16"
SIGNATURE = "audit/shadowed/HybridAttnBackend.get_verify_buffers_to_fill_after_draft"

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
