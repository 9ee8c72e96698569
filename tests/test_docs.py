"""Every code block of the README and the documentation runs, every command exists, every link leads somewhere."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import inspect
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

import collidescope as cs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.glob("*.md")]
}
#: Pages that take more than a few seconds.
LONG = {"docs/start.md", "docs/limits.md"}
NOT_RUN = re.compile(r"# not run: (.+)")
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass
class Block:
    page: str
    line: int
    language: str
    body: str
    #: The text block right below it: what it prints.
    shown: str | None


def blocks_of(page: str) -> list[Block]:
    text = PAGES[page]
    found = list(FENCE.finditer(text))
    blocks = []
    for match, following in zip_longest(found, found[1:]):
        below = following is not None and not text[match.end() : following.start()].strip()
        shown = following[2] if following is not None and below and following[1] == "text" else None
        blocks.append(Block(page, text.count("\n", 0, match.start()) + 2, match[1], match[2], shown))
    return blocks


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language in ("python", "pycon")]


def numbers(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"\d+\.\d+", text)]


def agree(printed: str, shown: str) -> None:
    """Words and layout must be the same, numbers about: other processors round differently in training."""
    assert re.sub(r"\d+\.\d+", "#", printed).split() == re.sub(r"\d+\.\d+", "#", shown).split()
    for ours, theirs in zip(numbers(printed), numbers(shown), strict=True):
        assert abs(ours - theirs) <= (5.0 if theirs > 1 else 0.05), (ours, theirs)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page in LONG else ())
        for page in PAGES
        if any(block.page == page for block in PYTHON)
    ],
)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {"__name__": "__main__"}
    for block in PYTHON:
        if block.page != page or NOT_RUN.match(block.body):
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            if ">>> " in block.body:
                test = doctest.DocTestParser().get_doctest(block.body, names, page, page, block.line)
                runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
                assert runner.run(test, clear_globs=False).failed == 0, out.getvalue()
            else:
                code = "\n" * (block.line - 1) + block.body  # so that a traceback names the line of the page
                exec(compile(code, str(ROOT / page), "exec"), names)
        if block.shown is not None:
            agree(out.getvalue(), block.shown)


def test_blocks_that_are_not_run_say_why_and_are_few():
    skipped = [block for block in PYTHON if "not run" in block.body.splitlines()[0]]
    assert all(NOT_RUN.match(block.body) for block in skipped)
    assert len(skipped) <= 2
    assert len(PYTHON) >= 15  # else the blocks are not found


def test_pages_use_no_language_that_no_test_knows():
    assert {block.language for block in BLOCKS} <= {"python", "pycon", "console", "text"}


# -------------------------------------------------------------------- commands


def commands() -> list[tuple[str, str]]:
    found = [
        (block.page, line[2:].split("  #")[0].strip())
        for block in BLOCKS
        if block.language == "console"
        for line in block.body.splitlines()
        if line.startswith("$ ")
    ]
    # in running text, too
    for page, text in PAGES.items():
        prose = FENCE.sub("", text)
        found += [(page, code) for code in re.findall(r"`((?:collidescope|make|python -m) [^`]+)`", prose)]
    return sorted(set(found))


MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def check_collidescope(words: list[str]) -> None:
    typer = pytest.importorskip("typer")
    from collidescope.cli.app import app

    known = typer.main.get_command(app).commands
    assert words[0] in known, f"there is no command {words[0]}"
    command = known[words[0]]
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    flags = [word for word in words[1:] if word.startswith("-")]
    assert set(flags) <= names, f"{words[0]} has no {set(flags) - names}"
    if "…" not in words and len(words) > 1:
        arguments = sum(parameter.param_type_name == "argument" for parameter in command.params)
        assert not words[1].startswith("-") or arguments == 0, f"{words[0]} wants {arguments} arguments first"


def check_command(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "collidescope":
        check_collidescope(words[1:])
    elif words[0] == "make":
        for word in words[1:]:
            name, assigns, _ = word.partition("=")
            pattern = rf"^{name} \??=" if assigns else rf"^{name}:"
            assert re.search(pattern, MAKEFILE, re.MULTILINE), f"the Makefile has no {name}"
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]) is not None
        if words[2] == "experiments":
            usage = (ROOT / "experiments" / "__main__.py").read_text(encoding="utf-8")
            assert f'"{words[3]}"' in usage, f"experiments has no command {words[3]}"
    elif words[0] in ("python", ".ci/run"):
        assert (ROOT / words[-1]).is_file()
    elif words[0] == ".ci/versions":
        assert f"{words[1]}|" in (ROOT / words[0]).read_text(encoding="utf-8")
    elif words[:2] == ["pip", "install"]:
        extras = re.search(r"\[(.+)\]", words[2])
        assert extras is None or set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])
    else:
        pytest.fail(f"no test knows {command!r}")


@pytest.mark.parametrize(("page", "command"), commands(), ids=lambda value: value.replace("/", "-"))
def test_a_command_and_its_flags_exist(page, command, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    check_command(command)


# -------------------------------------------------------------------- links and names


def leads_somewhere(page: str, target: str) -> bool:
    path = target.split("#")[0]
    if not path or path.startswith(("http://", "https://", "mailto:")):
        return True
    if path == "gallery/index.rst":
        return True
    if match := re.fullmatch(r"gallery/(plot_\w+)\.rst", path):  # made by sphinx-gallery
        return (ROOT / "examples" / f"{match[1]}.py").is_file()
    return ((ROOT / page).parent / path).exists()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", PAGES[page])
    assert [target for target in LINK.findall(text) if not leads_somewhere(page, target)] == []


def test_every_page_is_in_a_table_of_contents():
    listed = {
        line.strip()
        for text in PAGES.values()
        for body in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
        for line in body.splitlines()
    }
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    assert pages <= listed


def test_the_reference_lists_every_public_name_once_and_nothing_else():
    listed = re.findall(r"^   ([A-Za-z_]\w*)$", PAGES["docs/api.md"], re.MULTILINE)
    assert sorted(set(listed)) == sorted(listed)
    assert set(listed) == {*cs.__all__, "baselines"}


def test_names_in_references_exist():
    wrong = []
    for page, text in PAGES.items():
        for name in re.findall(r"\{py:\w+\}`~?collidescope\.([\w.]+)`", text) + re.findall(
            r"`collidescope\.([\w.]+)`", text
        ):
            found: object = cs
            for part in name.split("."):
                if inspect.ismodule(found) and not hasattr(found, part):
                    with contextlib.suppress(ImportError):
                        importlib.import_module(f"{found.__name__}.{part}")
                found = getattr(found, part, None)
            if found is None:
                wrong.append((page, name))
    assert wrong == []


#: Made by a function that has the example.
RESULTS = {
    *("AuditReport", "ConsolidationPlan", "Divergences", "LearningCurve", "PosteriorErrorBound", "Projection"),
    *("Recovery", "ShuffledControl", "SmoothingChoice", "CollisionWarning", "ModelFileError"),
}


def test_public_names_have_an_example_that_runs():
    """The doctests themselves are run with those of the modules."""
    without = {
        name
        for name in cs.__all__
        if not inspect.ismodule(getattr(cs, name)) and ">>> " not in (inspect.getdoc(getattr(cs, name)) or "")
    }
    assert without <= RESULTS | {"load"}


def test_the_readme_is_short_and_begins_with_a_picture():
    text = PAGES["README.md"]
    assert len(text.splitlines()) <= 200
    assert "![" in "\n".join(text.splitlines()[:25])


@pytest.mark.slow
def test_the_documentation_builds_without_warnings(tmp_path):
    """Without running the tutorials: tests/test_examples.py does that."""
    pytest.importorskip("sphinx_gallery")
    leave = shutil.ignore_patterns("_build", "gallery", "reference", "__pycache__", "*_execution_times.rst")
    shutil.copytree(DOCS, tmp_path / "docs", ignore=leave)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=leave)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-D", "plot_gallery=0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [*command, "docs", "html"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for page in (
        "index",
        "start",
        "choosing",
        "limits",
        "comparison",
        "mathematics",
        "api",
        "gallery/plot_merge_classes",
    ):
        assert (tmp_path / "html" / f"{page}.html").is_file()


# -------------------------------------------------------------------- numbers that are quoted from the generated pages


def table(page: str, *headings: str) -> list[list[str]]:
    """Cells of the first table below the headings, each looked for below the one before it."""
    text = PAGES[page]
    for heading in headings:
        assert heading in text, f"{page} no longer has {heading!r}"
        text = text.split(heading, 1)[1]
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip(" *") for cell in line.strip("|").split("|")])
    return rows


def values(rows: list[list[str]], *starts: str) -> list[float]:
    """The first number of every cell in the rows whose names begin so."""
    return [float(cell.split()[0]) for name, *row in rows if name.startswith(starts) for cell in row]


def span(found: list[float], digits: int = 2) -> str:
    return f"{min(found):.{digits}f} to {max(found):.{digits}f}"


def quoted() -> list[tuple[str, str]]:
    """(page, words): numbers of the generated pages, and where they are quoted."""
    names, _, *problems = table("docs/benchmarks.md", "## Accuracy of S")

    def column(name: str, *, curved: bool | None = None) -> list[float]:
        keep = [row for row in problems if curved is None or row[0].startswith("Scenario D") == curved]
        return [float(row[names.index(name)]) for row in keep]

    boosting = column("gradient boosting")
    means = "Mean TVD of the rows of S"
    A, B = (table("docs/reproduction.md", heading, means) for heading in ("## Scenario A", "## Scenario B"))
    default = [
        float(cell.split()[0]) for rows in (A, B) for name, *row in rows if name == "collidescope" for cell in row
    ]
    joint = "cleanlab's confident joint"
    counted = table("docs/reproduction.md", "## Counted collisions")
    tvd = [float(row[7]) for row in counted if row[1] == "collidescope" and "(" not in row[0]]
    covered = [row[3:] for row in table("docs/benchmarks.md", "## Do the intervals cover?")[2:]]
    many = next(row for row in table("docs/benchmarks.md", "## Which estimate of S?") if row[0].startswith("K=50"))
    return [
        ("docs/choosing.md", f"{span(column('collidescope'))} times that"),
        ("docs/choosing.md", f"({span(column('logistic regression', curved=False))} times the limit)"),
        ("docs/choosing.md", f"{span(column('logistic regression', curved=True), 0)} times the limit"),
        ("docs/choosing.md", f"{min(boosting):.1f} to {max(boosting):.0f} times the limit"),
        ("docs/choosing.md", f"{many[1]} times the limit, where the one-step estimate has {many[2]}"),
        ("docs/choosing.md", f"within {span(tvd, 3)} (mean TVD)"),
        *(("docs/limits.md", f"| {' | '.join(cells)} |") for cells in covered),
        ("docs/comparison.md", f"off by {span(values(A, joint) + values(B, joint))} (mean TVD)"),
        ("docs/comparison.md", f"off by {max(default):.2f} at most"),
        ("docs/comparison.md", f"off by {span(values(A, 'temperature', 'Platt', 'isotonic'))} in Scenario A"),
        ("docs/comparison.md", f"off by {span(values(A, 'Monte-Carlo', 'deep ensemble'))} in Scenario A"),
        ("docs/comparison.md", f"a Bayesian network by {span(values(A, 'Bayesian network'), 3)}"),
    ]


def test_numbers_quoted_in_the_guide_are_those_of_the_generated_pages():
    assert [(page, words) for page, words in quoted() if words not in " ".join(PAGES[page].split())] == []


@pytest.mark.parametrize(
    "words",
    ["0.175 instead of 0.200", "0.0066 (0.0050 to 0.0083)", "literal paper: 0.0282", "with the shift: 0.0106"],
)
def test_single_results_quoted_in_the_guide_are_still_there(words):
    assert words in PAGES["docs/reproduction.md"]
