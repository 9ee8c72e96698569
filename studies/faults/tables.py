"""The tables of ``docs/reliability.md``, from the last campaigns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from studies.markdown import table
from studies.store import Record, results

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


def bold(cells: list[str]) -> list[str]:
    return [f"**{cell}**" for cell in cells]


def kills_table() -> str:
    records = results("kills")
    r = records[-1]["result"]
    signals = ", ".join(
        f"{r[name]} {name}" for name in ("SIGINT", "SIGTERM", "SIGKILL")
    )
    return (
        f"Last campaign ({last_date(records)}): {r['kills']} kills ({signals}) in {r['fits']} fits "
        f"of three kinds; {r['same']} of {r['fits']} ended with the same S bit for bit, "
        f"{r['left']} half-written files were left behind."
    )


def fuzz_table() -> str:
    records = results("fuzz")
    fixed = [cause["campaign"] for cause in causes()]
    keys = ("tried", "refused", "accepted", "found")
    rows = []
    for record in records:
        target = record["cell"]["target"]
        counts = [f"{record['result'][key]:,}" for key in keys]
        rows.append([NAMES[target], *counts, str(fixed.count(target))])
    totals = [f"{sum(record['result'][key] for record in records):,}" for key in keys]
    n_fixed = sum(fixed.count(record["cell"]["target"]) for record in records)
    rows.append(bold(["together", *totals, str(n_fixed)]))
    head = (
        """what | mutations | refused | accepted, and work | found now | causes fixed"""
    )
    return f"Last campaign ({last_date(records)}):\n\n{table(head, rows)}"


def causes_list(kills: bool) -> str:
    lines = []
    for cause in causes():
        if (cause["campaign"] == "kills") == kills:
            test = cause["test"].split("::")[1]
            lines.append(f"- {cause['cause']} (`{test}`)")
    return "\n".join(lines)


def mutants_table() -> str:
    records = results("mutants")
    rows = []
    every = []
    for record in records:
        r = record["result"]
        counts = [r[key] for key in ("mutants", "tried", "killed", "timed out")]
        counts.append(len(r["survived"]))
        rows.append([f"`{record['cell']['module']}`", *_counts(counts)])
        every.append(counts)
    total = [sum(column) for column in zip(*every, strict=True)]
    rows.append(["**together**", *_counts(total)])
    drawn = "all"
    if total[1] < total[0]:
        drawn = (
            "where fewer mutants were tried than there are, they were drawn at random"
        )
    head = ["module", "mutants", "tried", "killed by a test", "by the time limit"]
    body = table([*head, "survived", "killed"], rows)
    return f"Last campaign ({last_date(records)}; {drawn}):\n\n{body}"


def _counts(counts: list[int]) -> list[str]:
    share = 1 - counts[-1] / counts[1]
    return [*(f"{value:,}" for value in counts), f"{share:.1%}"]


def survivors_table() -> str:
    """Reasons, the most frequent first, with the modules and one example."""
    groups = {}
    argued = arguments()
    for record in results("mutants"):
        module = record["cell"]["module"]
        for survivor in record["result"]["survived"]:
            name = survivor["mutant"]
            why = argued.get(module, {}).get(name, "**not argued**")
            groups.setdefault(why, []).append((module, name))
    rows = []
    for why, members in sorted(
        groups.items(), key=lambda item: (-len(item[1]), item[0])
    ):
        module, name = members[0]
        line, change = name.split(": ", 1)[1].split(" | ", 1)
        example = change
        if len(change) <= 25:
            example = f"{line} … {change}"
        example = example.replace("|", "\\|")
        rows.append([str(len(members)), why, f"`{module}`: `{example}`"])
    return table("survivors | why | for example", rows)


def arguments() -> dict[str, dict[str, str]]:
    """Why a survivor is none that a test should have noticed: module → mutant → reason."""
    recorded = json.loads((HERE / "survivors.json").read_text())
    return {
        module: {
            mutant: group["why"] for group in groups for mutant in group["mutants"]
        }
        for module, groups in recorded.items()
    }


def coverage_table() -> str:
    record = results("test-coverage")[-1]
    found = record["result"]
    modules = found["rooms"]
    rows = [_coverage_row(f"`{name}`", r) for name, r in modules.items()]
    total = {
        key: sum(r[key] for r in modules.values())
        for key in next(iter(modules.values()))
    }
    rows.append(_coverage_row("**all**", total))
    config = record["config"]
    return (
        f"Last run ({last_date([record])}, {config['tests']}): {found['percent']:.1f}% of "
        f"lines and branches together; `make coverage` fails below {config['fail_under']:g}%.\n\n"
        + table("module | lines | reached | branches | reached | together", rows)
    )


def _coverage_row(name: str, r: dict[str, Any]) -> list[str]:
    reached = r["covered_lines"] + r["covered_branches"]
    all_of_them = r["num_statements"] + r["num_branches"]
    keys = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    return [
        name,
        *(f"{r[key]:,}" for key in keys),
        f"{reached / max(all_of_them, 1):.1%}",
    ]


def versions_table() -> str:
    rows = []
    for record in results("versions"):
        r = record["result"]
        found = ", ".join(
            f"{name} {version}" for name, version in r["versions"].items()
        )
        counts = [f"{r[key]:,}" for key in ("passed", "skipped", "failed")]
        rows.append([record["cell"]["part"], r["date"], *counts, found])
    return table("run | date | passed | skipped | failed | with", rows)
