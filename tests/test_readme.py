"""The README's example runs and prints what it shows."""

from __future__ import annotations

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def numbers(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"\d+\.\d+", text)]


def test_the_ten_lines_print_what_the_readme_shows(capsys):
    code, shown = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL).groups()
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    # other processors round differently in training; words and layout must agree, numbers to about a standard error
    assert re.sub(r"\d+\.\d+", "#", printed).split() == re.sub(r"\d+\.\d+", "#", shown).split()
    for ours, theirs in zip(numbers(printed), numbers(shown), strict=True):
        assert abs(ours - theirs) <= (5.0 if theirs > 1 else 0.05)
