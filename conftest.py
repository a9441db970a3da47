"""Saved repros are tests in this checkout: ``pytest repros/ --target SPEC``."""

pytest_plugins = ["fuzz.regression"]
