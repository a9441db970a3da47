"""Lines that tell whether they are still what was written."""

from __future__ import annotations

import pytest

from fuzz.sealed import SealError, sealed, unsealed

DATA = {"b": [1, 2.5, None], "a": "ä\n", "c": {"y": True, "x": ""}}
LINE = '{"crc":"80bf1fe1","a":"\\u00e4\\n","b":[1,2.5,null],"c":{"x":"","y":true}}'


def test_literal_line() -> None:
    assert sealed(DATA) == LINE


def test_round_trip() -> None:
    assert unsealed(LINE) == DATA


def test_every_flipped_bit_that_changes_anything_is_noticed() -> None:
    unnoticed = []
    for at in range(len(LINE) * 8):
        data = bytearray(LINE.encode())
        data[at // 8] ^= 1 << at % 8
        try:
            assert unsealed(data.decode()) == DATA
        except ValueError:
            continue
        unnoticed.append(data[at // 8 : at // 8 + 1])
    assert unnoticed == [b"E"]  # of \\u00e4, which \\u00E4 spells as well


@pytest.mark.parametrize(
    ("line", "message"),
    [("", "not JSON"), ("[1]", "not an object"), ('{"a":1}', "has no checksum"), ('{"crc":"0","a":1}', "does not fit")],
)
def test_what_is_no_sealed_line_says_why(line: str, message: str) -> None:
    with pytest.raises(SealError, match=message):
        unsealed(line)
