"""Command line: ``python -m studies list | run NAME [--quick] [--jobs 2] | tables``."""

from __future__ import annotations

import argparse
import os

# One core a cell: set before numpy and torch are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from studies import pages
from studies.catalogue import every
from studies.runner import run
from studies.store import Study, results


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    actions = found.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="name every study")
    actions.add_parser(
        "tables", help="write the generated pages of docs/ from the records"
    )
    one = actions.add_parser(
        "run", help="run what is missing of some studies, then their tables"
    )
    one.add_argument(
        "names", nargs="+", metavar="NAME", help="as `list` names them, or all"
    )
    one.add_argument(
        "--quick", action="store_true", help="a small size, for a first look"
    )
    one.add_argument(
        "--jobs", type=int, default=2, help="cells side by side (default 2)"
    )
    one.add_argument(
        "--again", action="store_true", help="also what another pool has measured"
    )
    one.add_argument("--force", action="store_true", help="also what is recorded")
    one.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="just the cells with it",
    )
    return found


def chosen(names: list[str], known: dict[str, Study]) -> list[Study]:
    """The studies with these names."""
    if names == ["all"]:
        return list(known.values())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(
            f"no study is called {', '.join(unknown)}: `list` names those there are"
        )
    return [known[name] for name in names]


def main(arguments: list[str] | None = None) -> None:
    """Parse and do."""
    options = parser().parse_args(arguments)
    if options.action == "tables":
        pages.write()
        return
    known = every()
    if options.action == "list":
        for study in known.values():
            print(f"{study.name:<26} {study.title}")
        return
    only = dict(part.split("=", 1) for part in options.only) or None
    for study in chosen(options.names, known):
        run(
            study,
            quick=options.quick,
            jobs=options.jobs,
            only=only,
            again=options.again,
            force=options.force,
        )
        if study.table is not None and not options.quick:
            print(study.table(results(study.name)))


if __name__ == "__main__":
    main()
