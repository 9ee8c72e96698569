"""Every code block of the documentation runs, every command exists, every link leads somewhere."""

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
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

import collidescope as cs
from collidescope.learners import MEMBERS
from studies.__main__ import parser as study_parser
from studies.catalogue import every

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FILES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "llms.txt",
    *DOCS.glob("*.md"),
]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES
}
LONG = {"docs/start.md", "docs/limits.md"}  # more than a few seconds
SAME_AS_README = "docs/start.md"  # which is run
NOT_RUN = re.compile(r"# not run: (.+)")
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


class Block(NamedTuple):
    """A block of code, and the text block right below it: what it prints."""

    page: str
    line: int
    language: str
    body: str
    shown: str | None


def blocks_of(page: str) -> list[Block]:
    text = PAGES[page]
    found = list(FENCE.finditer(text))
    blocks = []
    for match, following in zip_longest(found, found[1:]):
        below = (
            following is not None
            and following[1] == "text"
            and not text[match.end() : following.start()].strip()
        )
        line = text.count("\n", 0, match.start()) + 2
        blocks.append(
            Block(page, line, match[1], match[2], following[2] if below else None)
        )
    return blocks


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language in ("python", "pycon")]


def agree(printed: str, shown: str) -> None:
    """Words and layout must be the same, numbers about: processors round differently."""
    number = r"\d+\.\d+"
    assert re.sub(number, "#", printed).split() == re.sub(number, "#", shown).split()
    for ours, theirs in zip(
        re.findall(number, printed), re.findall(number, shown), strict=True
    ):
        allowed = 5.0 if float(theirs) > 1 else 0.05
        assert abs(float(ours) - float(theirs)) <= allowed, (ours, theirs)


WITH_CODE = sorted({block.page for block in PYTHON} - {"README.md"})


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.slow if p in LONG else ()) for p in WITH_CODE],
)
def test_the_code_of_a_page_prints_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {"__name__": "__main__"}
    for block in PYTHON:
        if block.page != page or NOT_RUN.match(block.body):
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            if ">>> " in block.body:
                test = doctest.DocTestParser().get_doctest(
                    block.body, names, page, page, block.line
                )
                runner = doctest.DocTestRunner(
                    optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
                )
                assert runner.run(test, clear_globs=False).failed == 0, out.getvalue()
            else:
                # The empty lines make a traceback name the line of the page.
                code = "\n" * (block.line - 1) + block.body
                exec(compile(code, str(ROOT / page), "exec"), names)
        if block.shown is not None:
            agree(out.getvalue(), block.shown)


def test_the_code_of_the_readme_is_on_a_page_that_is_run():
    shown = {block[3:] for block in PYTHON if block.page == SAME_AS_README}
    ours = [block[3:] for block in PYTHON if block.page == "README.md"]
    assert ours
    assert shown.issuperset(ours)


def test_a_block_that_is_not_run_says_why():
    skipped = [block for block in PYTHON if "not run" in block.body.splitlines()[0]]
    assert all(NOT_RUN.match(block.body) for block in skipped)
    # Two pages show what needs a download of a network, or minutes of a CPU.
    elsewhere = [
        b for b in skipped if b.page not in ("docs/embeddings.md", "docs/images.md")
    ]
    # Others are run by a test that brings what they need.
    tests = [re.search(r"tests/\w+\.py", b.body.splitlines()[0]) for b in elsewhere]
    assert all((ROOT / test[0]).exists() for test in tests if test)
    assert tests.count(None) <= 1


def test_every_block_has_a_language_that_is_checked():
    assert len(PYTHON) >= 15
    assert {block.language for block in BLOCKS} <= {
        "python",
        "pycon",
        "console",
        "text",
    }


def commands() -> list[tuple[str, str]]:
    lines = [
        (block.page, line)
        for block in BLOCKS
        if block.language == "console"
        for line in block.body.splitlines()
    ]
    found = [
        (page, line[2:].split("  #")[0].strip())
        for page, line in lines
        if line.startswith("$ ")
    ]
    for page, text in PAGES.items():  # in running text, too
        prose = FENCE.sub("", text)
        found += [
            (page, code)
            for code in re.findall(
                r"`((?:collidescope|make|python -m|pip) [^`]+)`", prose
            )
        ]
    return sorted(set(found))


def check_collidescope(words: list[str]) -> None:
    typer = pytest.importorskip("typer")
    from collidescope.cli.app import app

    known = typer.main.get_command(app).commands
    assert words[0] in known, f"there is no command {words[0]}"
    command = known[words[0]]
    names = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    flags = [word for word in words[1:] if word.startswith("-")]
    assert set(flags) <= names, f"{words[0]} has no {set(flags) - names}"
    if "…" not in words and len(words) > 1:
        arguments = sum(
            parameter.param_type_name == "argument" for parameter in command.params
        )
        assert not words[1].startswith("-") or arguments == 0, (
            f"{words[0]} wants {arguments} arguments first"
        )


def check_studies(words: list[str]) -> None:
    for name in getattr(study_parser().parse_args(words), "names", []):
        assert name in {"NAME", *every()}, f"there is no study {name}"


def check_command(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "collidescope":
        check_collidescope(words[1:])
    elif words[0] == "make":
        for word in words[1:]:
            name, assigns, _ = word.partition("=")
            pattern = rf"^{name} \??=" if assigns else rf"^{name}:"
            assert re.search(pattern, MAKEFILE, re.MULTILINE), (
                f"the Makefile has no {name}"
            )
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]) is not None
        if words[2] == "studies":
            check_studies(words[3:])
    elif words[0] in ("python", ".ci/run"):
        assert (ROOT / words[-1]).is_file()
    elif words[0] == ".ci/versions":
        assert f"{words[1]}|" in (ROOT / words[0]).read_text(encoding="utf-8")
    elif words[:2] == ["pip", "install"]:
        extras = re.search(r"\[(.+)\]", words[2])
        assert extras is None or set(extras[1].split(",")) <= set(
            PROJECT["optional-dependencies"]
        )
    else:
        pytest.fail(f"no test knows {command!r}")


@pytest.mark.parametrize(
    ("page", "command"), commands(), ids=lambda value: value.replace("/", "-")
)
def test_a_command_exists_with_its_flags(page, command, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    check_command(command)


def anchors(text: str) -> set[str]:
    """What `#name` can lead to on a page: its labels, and its headings as myst writes them."""
    titles = re.findall(r"^#{1,6} (.+)$", FENCE.sub("", text), re.MULTILINE)
    plain = [
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        for title in titles
    ]
    return {*plain, *re.findall(r"^\((.+)\)=$", text, re.MULTILINE)}


@pytest.mark.parametrize("call", re.findall(r"-m (studies[^\n$]*)", MAKEFILE))
def test_the_makefile_calls_studies_that_exist(call, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    check_command(f"python -m {call}")


def test_every_member_of_the_pool_is_on_the_page_of_methods():
    page = PAGES["docs/choosing.md"]
    assert [name for name in MEMBERS if f"`{name}`" not in page] == []


def test_the_comparison_in_the_readme_is_that_of_the_table():
    best = re.search(
        r"the best of these on each table.*\| (\d+) of (\d+) \|",
        PAGES["docs/comparison.md"],
    )
    assert f"On {best[1]} of {best[2]} real tables" in PAGES["README.md"]


def test_the_sentences_that_the_readme_quotes_are_printed_by_its_example():
    (printed,) = [block.shown for block in PYTHON if block.page == "README.md"]
    quoted = re.findall(r'"([A-Z][^"]+%[^"]*)"', FENCE.sub("", PAGES["README.md"]))
    assert len(quoted) >= 2
    assert [sentence for sentence in quoted if sentence not in printed] == []


def leads_somewhere(page: str, target: str) -> bool:
    path, _, name = target.partition("#")
    if (
        path.startswith(("http://", "https://", "mailto:"))
        or path == "gallery/index.rst"
    ):
        return True
    if match := re.fullmatch(
        r"gallery/(plot_\w+)\.rst", path
    ):  # made by sphinx-gallery
        return (ROOT / "examples" / f"{match[1]}.py").is_file()
    found = ROOT / page
    if path:
        found = found.parent / path
    if name and found.suffix == ".md":
        return found.is_file() and name in anchors(found.read_text(encoding="utf-8"))
    return found.exists()


def test_every_example_is_in_the_gallery():
    shown = re.findall(
        r'"(plot_\w+\.py)"', (DOCS / "conf.py").read_text(encoding="utf-8")
    )
    assert sorted(shown) == sorted(
        path.name for path in (ROOT / "examples").glob("plot_*.py")
    )


def test_every_page_is_in_a_table_of_contents():
    contents = re.findall(
        r"```\{toctree\}\n(.*?)```", "\n".join(PAGES.values()), re.DOTALL
    )
    listed = {line.strip() for body in contents for line in body.splitlines()}
    assert {path.stem for path in DOCS.glob("*.md")} - {"index"} <= listed


def named(dotted: str) -> object:
    """The object that a dotted name below ``collidescope`` stands for, or None."""
    found: object = cs
    for part in dotted.split("."):
        if inspect.ismodule(found) and not hasattr(found, part):
            with contextlib.suppress(ImportError):
                importlib.import_module(f"{found.__name__}.{part}")
        found = getattr(found, part, None)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page):
    text = FENCE.sub("", PAGES[page])
    assert [
        target for target in LINK.findall(text) if not leads_somewhere(page, target)
    ] == []


def test_the_pages_that_consist_of_links_have_some():
    assert len(LINK.findall(PAGES["docs/equations.md"])) > 50
    assert len(LINK.findall(PAGES["README.md"])) > 10


def test_a_link_to_a_heading_that_is_not_there_is_found():
    assert leads_somewhere("README.md", "docs/start.md#install")
    assert not leads_somewhere("README.md", "docs/start.md#no-such-heading")


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_that_a_page_names_exist(page):
    sources = [
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py")
    ]
    known = set(re.findall(r"def (test_\w+)", "\n".join(sources)))
    assert set(re.findall(r"`(test_\w+)`", PAGES[page])) <= known


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_names_exist(page):
    folders = "docs|examples|src|studies|tests"
    names = re.findall(rf"`((?:{folders})/[\w/]+\.(?:py|txt|jsonl))`", PAGES[page])
    assert [name for name in names if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_names_of_the_package_on_a_page_exist(page):
    names = re.findall(r"`~?collidescope\.([\w.]+?)(?:\(.*?\))?`", PAGES[page])
    for modules, listed in re.findall(
        r"^\| `collidescope\.([^|]+)` \| ([^|]+) \|$", PAGES[page], re.MULTILINE
    ):
        first, *others = modules.replace("`", "").replace(".", "", 0).split(", ")
        homes = [first, *(f"{first.rpartition('.')[0]}{other}" for other in others)]
        for name in re.findall(r"`(\w+)`", listed):
            assert any(named(f"{home}.{name}") is not None for home in homes), (
                f"{name} is in none of {homes}"
            )
    assert [name for name in names if named(name) is None] == []


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The built documentation, without running the tutorials: tests/test_examples.py does that."""
    pytest.importorskip("sphinx_gallery")
    tmp_path = tmp_path_factory.mktemp("documentation")
    leave = shutil.ignore_patterns(
        "_build", "gallery", "reference", "__pycache__", "*_execution_times.rst"
    )
    shutil.copytree(DOCS, tmp_path / "docs", ignore=leave)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=leave)
    for linked in ("src", "studies", "tests"):
        (tmp_path / linked).symlink_to(ROOT / linked)
    options = ["-W", "--keep-going", "-q", "-D", "plot_gallery=0"]
    command = [sys.executable, "-m", "sphinx", *options, "docs", "html"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done, tmp_path / "html"


@pytest.mark.slow
def test_the_documentation_builds_without_warnings(built):
    done, _ = built
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_the_documentation_is_read_without_a_network(built):
    _, html = built
    page = (html / "mathematics.html").read_text(encoding="utf-8")
    assert (html / "_static" / "tex-svg.js").is_file()
    assert (
        re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']https?:[^"']+""", page)
        == []
    )
