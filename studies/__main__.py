"""Command line: ``python -m studies run NAME [--quick] [--jobs 2]``, ``list``, ``tables``, ``adopt FILE``."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # one core a cell: set before numpy and torch are loaded

from studies.reproduction.catalogue import EXPERIMENTS
from studies.runner import run
from studies.store import adopt


def main(arguments: list[str] | None = None) -> None:
    """Parse and do."""
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="name every experiment")
    actions.add_parser(
        "tables", help="write docs/reproduction.md, docs/errata.md and the figures from the results"
    )
    adopted = actions.add_parser(
        "adopt", help="take over the records that another machine has written"
    )
    adopted.add_argument("file", type=Path)
    one = actions.add_parser("run", help="run what is missing of an experiment")
    one.add_argument(
        "name", choices=[*EXPERIMENTS, "all"], metavar="NAME", help=", ".join([*EXPERIMENTS, "all"])
    )
    one.add_argument(
        "--quick", action="store_true", help="a small size for a first look and for tests"
    )
    one.add_argument("--jobs", type=int, default=2, help="cells side by side (default 2)")
    one.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="just the cells with it",
    )
    options = parser.parse_args(arguments)
    if options.action == "list":
        for experiment in EXPERIMENTS.values():
            print(f"{experiment.name:<26} {experiment.title}")
    elif options.action == "tables":
        importlib.import_module("studies.reproduction.pages").write()
    elif options.action == "adopt":
        for experiment in EXPERIMENTS.values():
            print(f"{experiment.name}: {adopt(experiment, options.file)} records")
    else:
        only = dict(part.split("=", 1) for part in options.only) or None
        for name in EXPERIMENTS if options.name == "all" else [options.name]:
            run(EXPERIMENTS[name], quick=options.quick, jobs=options.jobs, only=only)


if __name__ == "__main__":
    main()
