"""The tables of ``docs/reliability.md``, from the last campaigns: ``python -m stress.tables``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "reliability.md"
NAMES = {
    "model": "model files (`load`)",
    "trees": "model files with boosted trees",
    "matrix": "matrices (`CollisionMatrix.from_json`)",
    "checkpoint": "checkpoints (a fit that finds one)",
    "csv": "CSV through `count` and `predict`",
    "parquet": "Parquet through `count` and `predict`",
    "merge": "matrices and models through `merge`",
}


def results(name: str) -> Any:
    return json.loads((HERE / "results" / f"{name}.json").read_text())


def causes() -> list[dict[str, str]]:
    return json.loads((HERE / "causes.json").read_text())


def kills_table() -> str:
    recorded = results("kills")
    r, date = recorded["results"], recorded["environment"]["date"]
    signals = ", ".join(f"{r[name]} {name}" for name in ("SIGINT", "SIGTERM", "SIGKILL"))
    return (
        f"Last campaign ({date}): {r['kills']} kills ({signals}) in {r['fits']} fits of four kinds; {r['same']} of "
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
    lines.append(f"| **together** | {' | '.join(f'**{value:,}**' for value in total.values())} | **{n_fixed}** |")
    return f"Last campaign ({recorded['environment']['date']}):\n\n" + "\n".join(lines) + "\n"


def causes_list(kills: bool) -> str:
    return "".join(
        f"- {c['cause']} (`{c['test'].split('::')[1]}`)\n" for c in causes() if (c["campaign"] == "kills") == kills
    )


def filled(page: str) -> str:
    """The page with every part between its marks made anew."""
    parts = {
        "kills": kills_table(),
        "fuzz": fuzz_table(),
        "fixed-faults": causes_list(True),
        "fixed-files": causes_list(False),
    }
    for name, text in parts.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, rest = page.split(start)
        page = before + start + text + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
    print("→ docs/reliability.md")
