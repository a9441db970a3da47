"""Known faults: repro files with a reason, and what becomes of those that a campaign does not meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import CampaignError, CampaignOptions, run_campaign
from fuzz.known import read_known
from fuzz.program import Decode, Extend, Program, ProgramError, Row
from fuzz.sealed import unsealed
from stubs.world import World
from tests.fuzz.campaign_log import Log, on_decode

SIGNATURE = "contract/KeyError/Backend.forward_decode"
DECODES = Program(World(), (Extend((Row(0, 3),)), Decode((0,))))
SCRIPT = '''"""KeyError in decode

Found on pypi:0.5.16.
{known}
"""
SIGNATURE = "{signature}"
PROGRAM = r"""{program}"""
'''


def write(folder: Path, known: str, name: str = "a.py", signature: str = SIGNATURE, program: Program = DECODES) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(SCRIPT.format(known=known, signature=signature, program=program.text.rstrip()))
    return path


@pytest.mark.parametrize("reason", ["https://github.com/sgl-project/sglang/issues/1", "fixed in 0.5.17: see there"])
def test_reason_is_read_from_the_docstring(tmp_path: Path, reason: str) -> None:
    path = write(tmp_path, f"Known: {reason}")
    (known,) = read_known(tmp_path).values()
    assert (known.path, known.signature, known.program, known.reason) == (path, SIGNATURE, DECODES, reason)


@pytest.mark.parametrize("line", ["", "Known:", "Known:   ", "It is Known: why", "known: why"])
def test_one_without_its_reason_is_refused_in_one_line(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, line)
    with pytest.raises(ProgramError) as caught:
        read_known(tmp_path)
    assert str(caught.value) == (
        f"{path} does not say why it is known; expected a line `Known: ADDRESS OF THE ISSUE, OR A REASON` in its docstring"
    )


def test_one_without_a_signature_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "Known: why")
    path.write_text(path.read_text().replace("SIGNATURE =", "OTHER ="))
    with pytest.raises(ProgramError, match=r"a.py names no SIGNATURE; expected a repro script"):
        read_known(tmp_path)


def test_campaign_with_one_that_is_refused_does_not_start(options: Any, tmp_path: Path) -> None:
    write(tmp_path / "known", "")
    with pytest.raises(CampaignError, match=r"known: .*a.py does not say why it is known"):
        run_campaign(options(known=tmp_path / "known"), Log())
    assert not (tmp_path / "out").exists()


def standings(chosen: CampaignOptions) -> list[tuple[str, str, int]]:
    lines = (chosen.out / "known.jsonl").read_text().splitlines()
    entries = [unsealed(line) for line in lines]
    return [(Path(entry["script"]).name, entry["state"], entry["count"]) for entry in entries]


def test_those_that_were_not_met_are_tried_in_their_own_program(options: Any, tmp_path: Path) -> None:
    known = tmp_path / "known"
    source = "class Refusal(Exception): pass\n" + on_decode(
        "raise KeyError('x') if seed in (77, 99) else Refusal('no') if seed == 88 else OSError"
    )
    write(known, "Known: still there", "a.py", program=Program(DECODES.world, DECODES.ops, seed=77))
    write(known, "Known: fixed", "b.py", "contract/KeyError/g", Program(DECODES.world, DECODES.ops[:1]))
    write(
        known,
        "Known: not for this release",
        "c.py",
        "contract/KeyError/h",
        Program(DECODES.world, DECODES.ops, seed=88),
    )
    write(known, "Known: met", "d.py", "contract/OSError/Backend.forward_decode")
    write(known, "Known: on another device", "e.py", "contract/KeyError/i", Program(World(device="cuda"), DECODES.ops))
    chosen = options(source, known=known)
    result = run_campaign(chosen, Log())
    count = result.findings[0]["count"]
    expected = [
        ("a.py", "shows", 0),
        ("b.py", "gone", 0),
        ("c.py", "unclear", 0),
        ("d.py", "met", count),
        ("e.py", "unclear", 0),
    ]
    assert standings(chosen) == expected
    assert [one["detail"] for one in result.known if one["detail"]] == [
        "unsupported: Refusal at Backend.forward_decode",
        "its program is one for device cuda",
    ]
    assert (result.exit_code, result.scripts) == (0, ())
    again = run_campaign(chosen, Log())  # of a finished campaign everything is known
    assert again == result


def test_flaky_one_is_not_gone(options: Any, tmp_path: Path) -> None:
    known = tmp_path / "known"
    write(known, "Known: now and then", program=Program(DECODES.world, DECODES.ops, seed=77))
    flag = str(tmp_path / "flag")
    third = f"seen = open({flag!r}, 'a+'); seen.write('x'); seen.seek(0); tries = len(seen.read()); seen.close()"
    source = on_decode(f"{third}\n        if seed == 77 and tries % 3 == 0: raise KeyError('x')")
    chosen = options(source, known=known, programs=1, seed=3)
    result = run_campaign(chosen, Log())
    assert [one["state"] for one in result.known] == ["shows"]
