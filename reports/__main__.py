"""``python -m reports DIR``: write the reports of a run's folder once more."""

from __future__ import annotations

import sys
from pathlib import Path

from reports.render import write_reports


def main(arguments: list[str]) -> int:
    """Exit status 0, or 2 when DIR is missing or no folder."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m reports DIR   (DIR: the --out folder of a run)", file=sys.stderr)
        return 2
    try:
        paths = write_reports(Path(arguments[0]))
    except NotADirectoryError as error:
        print(f"reports: {error}", file=sys.stderr)
        return 2
    print("\n".join(str(path) for path in paths))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
