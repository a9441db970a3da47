"""Refused: SGLang itself says that it does not serve a combination of start-up settings."""

from __future__ import annotations


class Refused(Exception):
    """``reason`` is SGLang's own message: the settings are unsupported, and nothing is wrong with them or with us."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
