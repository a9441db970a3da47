"""The command line's root, which each verb joins, and what the verbs share in speaking to people."""

from __future__ import annotations

import json
from typing import Any

import click

NEEDED = "pip install 'seamripper[report]'"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="seamripper")
def cli() -> None:
    """Find and reproduce faults where SGLang's HybridAttnBackend joins two attention backends.

    A SPEC names the SGLang to test: installed, pypi:VERSION, path:DIR (DIR holds sglang/), or git:DIR@REV.
    """


def tell(text: str) -> None:
    """Progress goes to stderr, so that stdout can be piped."""
    click.echo(text, err=True)


def print_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=1))
