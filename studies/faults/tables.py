"""The tables of ``docs/reliability.md``, from the last campaigns: ``python -m studies.faults.tables``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"
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


def results(name: str) -> Any:
    return json.loads((HERE.parent / "results" / f"{name}.json").read_text())


def causes() -> list[dict[str, str]]:
    return json.loads((HERE / "causes.json").read_text())


def kills_table() -> str:
    recorded = results("kills")
    r, date = recorded["results"], recorded["environment"]["date"]
    signals = ", ".join(f"{r[name]} {name}" for name in ("SIGINT", "SIGTERM", "SIGKILL"))
    return (
        f"Last campaign ({date}): {r['kills']} kills ({signals}) in {r['fits']} fits of three kinds; {r['same']} of "
        f"{r['fits']} ended with the same S bit for bit, {r['left']} half-written files were left behind.\n"
    )


def fuzz_table() -> str:
    recorded = results("fuzz")
    lines = [
        "| what | mutations | refused | accepted, and work | found now | causes fixed |",
        "|---|---|---|---|---|---|",
    ]
    total = dict.fromkeys(("tried", "refused", "accepted", "found"), 0)
    fixed = [cause["campaign"] for cause in causes()]
    for target, r in recorded["results"].items():
        cells = [f"{r[key]:,}" for key in total]
        lines.append(f"| {NAMES[target]} | {' | '.join(cells)} | {fixed.count(target)} |")
        total = {key: total[key] + r[key] for key in total}
    n_fixed = sum(fixed.count(target) for target in recorded["results"])
    lines.append(
        f"| **together** | {' | '.join(f'**{value:,}**' for value in total.values())} | **{n_fixed}** |"
    )
    return f"Last campaign ({recorded['environment']['date']}):\n\n" + "\n".join(lines) + "\n"


def causes_list(kills: bool) -> str:
    return "".join(
        f"- {c['cause']} (`{c['test'].split('::')[1]}`)\n"
        for c in causes()
        if (c["campaign"] == "kills") == kills
    )


def mutants_table() -> str:
    recorded = results("mutants")
    lines = [
        "| module | mutants | tried | killed by a test | by the time limit | survived | killed |",
        "|---|---|---|---|---|---|---|",
    ]
    total = [0, 0, 0, 0, 0]
    for module, r in recorded["results"].items():
        counts = [r["mutants"], r["tried"], r["killed"], r["timed out"], len(r["survived"])]
        lines.append(f"| `{module}` | {_counts(counts)} |")
        total = [sum(pair) for pair in zip(total, counts, strict=True)]
    lines.append(f"| **together** | {_counts(total)} |")
    drawn = (
        "where fewer mutants were tried than there are, they were drawn at random"
        if total[1] < total[0]
        else "all"
    )
    return (
        f"Last campaign ({recorded['environment']['date']}; {drawn}):\n\n" + "\n".join(lines) + "\n"
    )


def _counts(counts: list[int]) -> str:
    share = 1 - counts[-1] / counts[1]
    return " | ".join([*(f"{value:,}" for value in counts), f"{share:.1%}"])


def survivors_table() -> str:
    """Reasons, the most frequent first, with the modules and one example."""
    survived = {
        module: [s["mutant"] for s in r["survived"]]
        for module, r in results("mutants")["results"].items()
    }
    groups: dict[str, list[tuple[str, str]]] = {}
    argued = arguments()
    for module, names in survived.items():
        for name in names:
            groups.setdefault(argued.get(module, {}).get(name, "**not argued**"), []).append(
                (module, name)
            )
    lines = ["| survivors | why | for example |", "|---|---|---|"]
    for why, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        module, name = members[0]
        line, change = name.split(": ", 1)[1].split(" | ", 1)
        example = change if len(change) > 25 else f"{line} … {change}"
        example = example.replace("|", "\\|")
        lines.append(f"| {len(members)} | {why} | `{module}`: `{example}` |")
    return "\n".join(lines) + "\n"


def arguments() -> dict[str, dict[str, str]]:
    """Why a survivor is none that a test should have noticed: module → mutant → reason."""
    recorded = json.loads((HERE / "survivors.json").read_text())
    return {
        module: {mutant: group["why"] for group in groups for mutant in group["mutants"]}
        for module, groups in recorded.items()
    }


def coverage_table() -> str:
    recorded = results("test-coverage")
    lines = [
        "| room | lines | reached | branches | reached | together |",
        "|---|---|---|---|---|---|",
    ]
    rooms = recorded["results"]["rooms"]
    together = {
        name: sum(room[name] for room in rooms.values()) for name in next(iter(rooms.values()))
    }
    for room, r in [*((f"`{room}`", r) for room, r in rooms.items()), ("**all**", together)]:
        cells = (r["num_statements"], r["covered_lines"], r["num_branches"], r["covered_branches"])
        share = (cells[1] + cells[3]) / max(cells[0] + cells[2], 1)
        lines.append(f"| {room} | {' | '.join(f'{value:,}' for value in cells)} | {share:.1%} |")
    least, percent = recorded["config"]["fail_under"], recorded["results"]["percent"]
    return (
        f"Last run ({recorded['environment']['date']}, {recorded['config']['tests']}): {percent:.1f}% of lines and "
        f"branches together; `make coverage` fails below {least:g}%.\n\n" + "\n".join(lines) + "\n"
    )


def versions_table() -> str:
    lines = ["| run | date | passed | skipped | failed | with |", "|---|---|---|---|---|---|"]
    for run, r in results("versions")["results"].items():
        found = ", ".join(f"{name} {version}" for name, version in r["versions"].items())
        lines.append(
            f"| {run} | {r['date']} | {r['passed']:,} | {r['skipped']:,} | {r['failed']:,} | {found} |"
        )
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """The page with every part between its marks made anew."""
    parts = {
        "kills": kills_table(),
        "fuzz": fuzz_table(),
        "fixed-faults": causes_list(True),
        "fixed-files": causes_list(False),
        "mutants": mutants_table(),
        "survivors": survivors_table(),
        "coverage": coverage_table(),
        "versions": versions_table(),
    }
    for name, text in parts.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, rest = page.split(start)
        page = before + start + text + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
    print("→ docs/reliability.md")
