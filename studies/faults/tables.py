"""The tables of ``docs/reliability.md``, from the last campaigns."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import pandas as pd

from studies.markdown import columns, table
from studies.store import Record, Result, results, runs

HERE = Path(__file__).parent
NAMES = {
    "model": "model files (`load`)",
    "trees": "model files with boosted trees",
    "matrix": "matrices (`CollisionMatrix.from_json`)",
    "checkpoint": "checkpoints (a fit that finds one)",
    "npz": "matrices (`CollisionMatrix.from_npz`)",
    "forged": "checkpoints changed, with a checksum that fits",
    "custom": "the same of a custom module",
    "csv": "CSV through `count` and `predict`",
    "parquet": "Parquet through `count` and `predict`",
    "merge": "matrices and models through `merge`",
    "summary": "summaries through `report`",
}


def parts() -> dict[str, str]:
    """Every part of the page, by the name of its place."""
    return {
        "kills": kills_table(),
        "fuzz": fuzz_table(),
        "fixed-faults": causes_list(True),
        "fixed-files": causes_list(False),
        "mutants": mutants_table(),
        "survivors": survivors_table(),
        "coverage": coverage_table(),
        "versions": versions_table(),
    }


def causes() -> list[dict[str, str]]:
    return json.loads((HERE / "causes.json").read_text())


def last_date(records: list[Record]) -> str:
    return max(record["environment"]["date"] for record in records)


def kills_table() -> str:
    records = results("kills")
    shown = """Last campaign ({date}): {kills} kills ({SIGINT} SIGINT, {SIGTERM} SIGTERM, \
{SIGKILL} SIGKILL) in {fits} fits of three kinds; {same} of {fits} ended with the same S bit for \
bit, {left} half-written files were left behind."""
    return shown.format(date=last_date(records), **records[-1]["result"])


FUZZ = """
what | {what}
mutations | {tried:,}
refused | {refused:,}
accepted, and work | {accepted:,}
found now | {found:,}
causes fixed | {fixed}
"""


def fuzz_table() -> str:
    records = results("fuzz")
    fixed = Counter(cause["campaign"] for cause in causes())
    rows = []
    for record in records:
        target = record["cell"]["target"]
        about = {"what": NAMES[target], "fixed": fixed[target]}
        rows.append(record["result"] | about)
    line = columns(bold(FUZZ), [{"what": "together"} | sums(rows)]).splitlines()[-1]
    return f"Last campaign ({last_date(records)}):\n\n{columns(FUZZ, rows)}\n{line}"


def sums(rows: list[Result]) -> Result:
    """Of the numbers of all rows."""
    return pd.DataFrame(rows).select_dtypes("int").sum().to_dict()


def bold(shown: str) -> str:
    """The same columns in bold."""
    return re.sub(r" \| (.+)", r" | **\1**", shown)


def causes_list(kills: bool) -> str:
    lines = []
    for cause in causes():
        if (cause["campaign"] == "kills") == kills:
            test = cause["test"].split("::")[1]
            lines.append(f"- {cause['cause']} (`{test}`)")
    return "\n".join(lines)


MUTANTS = """
module | {name}
mutants | {mutants:,}
tried | {tried:,}
killed by a test | {killed:,}
by the time limit | {timed out:,}
survived | {survivors:,}
killed | {share:.1%}
"""


def mutants_table() -> str:
    records = results("mutants")
    rows = []
    for record in records:
        found = record["result"]
        name = f"`{record['cell']['module']}`"
        rows.append(found | {"name": name, "survivors": len(found["survived"])})
    total = {"name": "**together**"} | sums(rows)
    rows.append(total)
    for row in rows:
        row["share"] = 1 - row["survivors"] / row["tried"]
    drawn = "all"
    if total["tried"] < total["mutants"]:
        drawn = (
            "where fewer mutants were tried than there are, they were drawn at random"
        )
    return f"Last campaign ({last_date(records)}; {drawn}):\n\n{columns(MUTANTS, rows)}"


def survivors_table() -> str:
    """Reasons, the most frequent first, with the modules and one example."""
    argued = arguments()
    groups = defaultdict(list)
    for record in results("mutants"):
        module = record["cell"]["module"]
        for survivor in record["result"]["survived"]:
            name = survivor["mutant"]
            why = argued.get(module, {}).get(name, "**not argued**")
            groups[why].append((module, name))
    rows = []
    for why in sorted(groups, key=lambda why: (-len(groups[why]), why)):
        module, name = groups[why][0]
        line, change = name.split(": ", 1)[1].split(" | ", 1)
        example = change
        if len(change) <= 25:
            example = f"{line} … {change}"
        example = example.replace("|", "\\|")
        rows.append([str(len(groups[why])), why, f"`{module}`: `{example}`"])
    return table("survivors | why | for example", rows)


def arguments() -> dict[str, dict[str, str]]:
    """Why a survivor is none that a test should have noticed: module → mutant → reason."""
    recorded = json.loads((HERE / "survivors.json").read_text())
    found = defaultdict(dict)
    for module, groups in recorded.items():
        for group in groups:
            found[module] |= dict.fromkeys(group["mutants"], group["why"])
    return found


COVERAGE = """
module | {name}
lines | {num_statements:,}
reached | {covered_lines:,}
branches | {num_branches:,}
reached | {covered_branches:,}
together | {share:.1%}
"""


def coverage_table() -> str:
    record = results("test-coverage")[-1]
    found = record["result"]
    config = record["config"]
    rows = [{"name": f"`{name}`"} | counts for name, counts in found["rooms"].items()]
    rows.append({"name": "**all**"} | sums(rows))
    for row in rows:
        reached = row["covered_lines"] + row["covered_branches"]
        all_of_them = row["num_statements"] + row["num_branches"]
        row["share"] = reached / max(all_of_them, 1)
    return f"""Last run ({last_date([record])}, {config["tests"]}): {found["percent"]:.1f}% of \
lines and branches together; `make coverage` fails below {config["fail_under"]:g}%.

{columns(COVERAGE, rows)}"""


VERSIONS = """
run | {part}
date | {date}
passed | {passed:,}
skipped | {skipped:,}
failed | {failed:,}
with | {found}
"""


def versions_table() -> str:
    rows = []
    for run in runs("versions"):
        versions = run["versions"].items()
        found = ", ".join(f"{name} {version}" for name, version in versions)
        rows.append(run | {"found": found})
    return columns(VERSIONS, rows)
