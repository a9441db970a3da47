"""The command line's outer edge: runs one verb and turns whatever comes of it into an exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from fuzz.answers import COULD_NOT_RUN
from fuzz.campaign import CampaignError
from fuzz.known_bugs import KnownBugsError
from fuzz.limits import LimitsError
from fuzz.process import WorkerError
from fuzz.program import ProgramError
from fuzz.revisions import CANNOT_TELL
from fuzz.store import StoreError
from fuzz.targets import TargetError
from fuzz.verbs import cli
from stubs.world import WorldError

# What a user can get wrong; anything else that is raised is a fault of ours.
USER_ERRORS = (CampaignError, KnownBugsError, LimitsError, ProgramError, TargetError, WorldError)
ENVIRONMENT_ERRORS = (StoreError, WorkerError)
BAD_USAGE, INTERRUPTED, BROKEN_PIPE = 2, 130, 141  # the last two as shells spell SIGINT and SIGPIPE


def main(given: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status. A user's mistake is one line on stderr."""
    args = list(sys.argv[1:] if given is None else given) or ["--help"]
    # `git bisect run` takes 125 for "skip this one" and most else for "bad".
    failed = CANNOT_TELL if args[0] in ("replay", "bisect") else COULD_NOT_RUN
    try:
        return cli.main(args, prog_name="seamripper", standalone_mode=False, obj=args) or 0
    except click.UsageError as error:
        _complain(error.format_message(), f"; see {error.ctx.command_path if error.ctx else 'seamripper'} --help")
        return BAD_USAGE
    except click.ClickException as error:
        _complain(error.format_message())
        return failed
    except USER_ERRORS as error:
        _complain(str(error))
        return BAD_USAGE
    except ENVIRONMENT_ERRORS as error:
        _complain(str(error))
        return failed
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for one, has seen enough; Python must not try to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return failed
    except Exception:  # noqa: BLE001 - the outermost boundary: an exit status must come of it, whatever it is
        traceback.print_exc()
        _complain("this is a fault of seamripper itself; please report it with the lines above")
        return failed


def _complain(message: str, advice: str = "") -> None:
    """One line, whatever the message holds."""
    click.echo(f"seamripper: {' '.join(message.split()).rstrip('.')}{advice}", err=True)


if __name__ == "__main__":
    sys.exit(main())
