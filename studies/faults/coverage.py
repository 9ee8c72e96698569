"""What the tests of the last ``make coverage`` executed: printed, and kept for the documentation.

``python -m studies.faults.coverage`` reads ``.coverage``, which pytest-cov has written; it fails
below ``fail_under``. Another choice of tests than all of them is named:
``python -m studies.faults.coverage "only the fast tests"``.
"""

from __future__ import annotations

import collections
import json
import sys
import tempfile
from pathlib import Path

import coverage

from studies.store import new_record, path_of, replace

#: Counted for every module or subpackage directly below collidescope.
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def by_module(files: dict[str, dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """Module or subpackage directly below collidescope → its counts."""
    found = collections.defaultdict(collections.Counter)
    for path, entry in files.items():
        behind = path.rpartition("collidescope/")[2]
        module = behind.partition("/")[0].removesuffix(".py")
        summary = entry["summary"]
        found[module].update({count: summary[count] for count in COUNTS})
    return {name: dict(found[name]) for name in sorted(found)}


def main(tests: str = "all tests") -> None:
    measured = coverage.Coverage()
    measured.load()
    percent = measured.report()
    with tempfile.TemporaryDirectory() as folder:
        measured.json_report(outfile=f"{folder}/report.json")
        report = json.loads(Path(folder, "report.json").read_text())
    least = measured.get_option("report:fail_under")
    result = {"percent": round(percent, 2), "rooms": by_module(report["files"])}
    record = new_record("test-coverage", {"part": "coverage"}, result, 0.0)
    record["config"] = {
        "fail_under": least,
        "coverage": coverage.__version__,
        "tests": tests,
    }
    replace(path_of("test-coverage"), record)
    if percent < least:
        sys.exit(
            f"coverage is {percent:.1f}%, less than the {least}% that pyproject.toml asks for"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
