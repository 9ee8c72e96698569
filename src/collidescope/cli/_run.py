"""Options that several commands share, each explained once, and what every command does with them.

A command says by name which of the options of :class:`Run` it offers, and gets them as its first argument. What it
prints comes before anything is written; outputs are tried before the work. Heavy libraries are imported when a command
runs, for ``--help`` needs none.
"""

from __future__ import annotations

import functools
import inspect
import io
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import collidescope as cs
from collidescope.cli._console import BAD_INPUT, FAILURE, State, explained, fail, guarded, say, show, show_json

if TYPE_CHECKING:
    import pandas as pd

    from collidescope.cli._inputs import Reading
    from collidescope.matrix import CollisionMatrix

#: How a table is written, by the name of its file: separated by this, or as Parquet.
SUFFIXES = {".csv": ",", ".tsv": "\t", ".txt": "\t", ".parquet": "", ".pq": ""}
#: Spreadsheets run a cell that starts with one of these as a formula; where lists are separated by semicolons, what
#: follows one is a cell too, and so is what follows a line break that lost its quotes.
FORMULA = re.compile(r"(^|[;\t\r\n])(?=\s*[=+\-@]|[\t\r])")
NUMBER = re.compile(r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$")
#: Pairs printed below the matrix, and up to how many classes.
PAIRS, FEW_CLASSES = 5, 12
#: An output: what it is, where to, and the function that writes it.
Output = tuple[str, Path | None, Callable[[Path], Any]]

#: Options by the panel of the help that they stand in.
reading: Callable[..., Any] = partial(typer.Option, rich_help_panel="Reading the table")
columns: Callable[..., Any] = partial(typer.Option, rich_help_panel="Columns and rows")
training: Callable[..., Any] = partial(typer.Option, rich_help_panel="Training")
results: Callable[..., Any] = partial(typer.Option, rich_help_panel="What comes out")
#: The name of a column, names, a file.
Column = str | None
Columns = list[str] | None
File = Path | None

HEADER = "Whether the first line names the columns. Without it they are called c1, c2, … (and --label 15 or --label -1 "
HEADER += "works too)."
LABEL = "The column that holds the classes."
OUT = "Write the table: .csv, .tsv or .parquet."
REPORT = "Write the report, one page that works offline."
JSON = "Print JSON for machines on standard output, and nothing else there."
TABLE = "CSV, TSV (also .gz), Parquet, JSON lines or Excel."
TableArgument = Annotated[Path, typer.Argument(metavar="TABLE", help=TABLE)]
Drop = Annotated[Columns, columns(metavar="COLUMN", help="Leave a column out. Repeat for more.")]
Keep = Annotated[Columns, columns(metavar="COLUMN", help="Use a column though it looks like an id.")]
SAMPLE = "Use N rows drawn at random: a first look."
Sample = Annotated[int | None, columns(min=20, metavar="N", help=SAMPLE)]
Seed = Annotated[int, training(min=0, help="Same seed, same result.")]

#: Options of :class:`Run` that commands take together.
READING = ("label", "header", "delimiter", "skip_lines")
PRINTING = ("as_json", "quiet")
ESTIMATING = (*READING, "report", "matrix", "title", *PRINTING)


@dataclass
class Run:
    """Shared options; a command that does not offer one has its default."""

    label: Annotated[Column, typer.Option("--label", "-l", metavar="COLUMN", help=LABEL)] = None
    out: Annotated[File, typer.Option("--out", "-o", metavar="FILE", help=OUT)] = None
    report: Annotated[File, results(metavar="FILE.html", help=REPORT)] = None
    matrix: Annotated[File, results(metavar="FILE.json", help="Write S for `collidescope merge`.")] = None
    as_json: Annotated[bool, results("--json", help=JSON)] = False
    title: Annotated[str | None, results(help="Title of the report.")] = None
    quiet: Annotated[bool, results("--quiet", "-q", help="No notes and no progress, only results and errors.")] = False
    header: Annotated[bool, reading(help=HEADER)] = True
    delimiter: Annotated[str | None, reading(metavar="CHARACTER", help="Detected by default; 'tab' for tabs.")] = None
    skip_lines: Annotated[int, reading(min=0, metavar="N", help="Lines to skip above the table.")] = 0

    def start(self, *inputs: Path | None, outputs: Sequence[Path | None] = ()) -> Reading:
        """Before any work: can all outputs be written, apart from each other and from the inputs? How to read."""
        from collidescope.cli._inputs import Reading

        State.quiet = self.quiet
        check_outputs([path for path in inputs if path], [self.out, self.report, self.matrix, *outputs])
        check_suffix(self.out)
        if self.report is not None:
            check_report()
        return Reading(self.header, self.delimiter, self.skip_lines)

    def about(self, command: str, table: Path, label: str | None, *options: str, **more: Any) -> dict[str, Any]:
        """Where the rows come from, for the report: ``command`` as it was typed; ``more`` of what summarise takes."""
        typed = ["collidescope", command, str(table), *(["--label", label] if label is not None else []), *options]
        return {"file": table.name, "label": label, "command": shlex.join(typed), "saved": self.matrix} | more

    def tell(self, words: str | None, data: Callable[[], Any], *outputs: Output) -> None:
        """Print the answer (``data`` as JSON where asked for), then write what was asked for."""
        if self.as_json:
            show_json(data())
        elif words is not None:
            show(words)
        write_outputs(*outputs)

    def finish(self, cm: CollisionMatrix, summary: dict[str, Any], *more: Output, limit: Any = None) -> None:
        outputs = ("matrix", self.matrix, partial(write_matrix, cm)), ("report", self.report, page_of(lambda: summary))
        self.tell(None if self.as_json else matrix_text(cm, summary, limit), lambda: summary, *more, *outputs)


def command(*shared: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that offers the options ``shared`` of :class:`Run` behind its own, and gets them as one argument."""
    offered = [field.name for field in fields(Run) if field.name in shared]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @guarded
        @functools.wraps(function)
        def run(**given: Any) -> None:
            function(Run(**{name: given.pop(name) for name in offered}), **given)

        own, common = (inspect.signature(part, eval_str=True).parameters for part in (function, Run))
        every = [*list(own.values())[1:], *(common[name] for name in offered)]
        every.sort(key=lambda option: option.name != "label")  # which is asked for first
        keyword = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in every]
        run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in every}
        return run

    return decorate


def load_source(path: Path) -> Any:
    """A model, a matrix, or a summary (a dict), told apart by what is in the file."""
    from collidescope._store import read_json, regular_file
    from collidescope.matrix import FORMAT

    with open(regular_file(path), "rb") as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"PK"):
        return cs.CollisionMatrix.from_npz(path)
    if not start.startswith(b"{"):
        return cs.load(path)
    content = read_json(path)
    kind = content.get("format") if isinstance(content, dict) else None
    if kind == FORMAT:
        return cs.CollisionMatrix.from_dict(content)
    if kind == "collidescope.summary":
        return content
    rest = "(written by --matrix) nor a summary (written by --json) of collidescope"
    raise ValueError(f"{path} is JSON, but neither a matrix {rest}")


def load_matrix(path: Path) -> CollisionMatrix:
    """S from a matrix or from a model."""
    source = load_source(path)
    if isinstance(source, dict):
        raise ValueError(f"{path} is a summary, which rounds S: give the model, or the JSON of --matrix")
    return getattr(source, "collision_matrix_", source)


def load_model(path: Path) -> Any:
    """A fitted model."""
    source = load_source(path)
    if not hasattr(source, "predict_proba"):
        raise ValueError(f"{path} is no model: give a file written by `collidescope fit … --save model.collide`")
    return source


def check_outputs(inputs: Sequence[Path], outputs: Sequence[Path | None]) -> None:
    """Can the outputs be written, apart from each other and from the files that are read?"""
    from collidescope._store import check_output

    given = [path for path in outputs if path is not None]
    for path in given:
        check_output(path)
    taken = [*inputs]
    for path in given:
        if path.exists() and not path.is_file():  # a device or FIFO takes more than one
            continue
        if (twin := next((other for other in taken if _same(path, other)), None)) is not None:
            doing = "is the file that is read" if twin in inputs else "is named for two results"
            raise ValueError(f"{path} {doing}: write to another one")
        taken.append(path)


def _same(one: Path, other: Path) -> bool:
    both = one.exists() and other.exists()
    return one.samefile(other) if both else one.resolve() == other.resolve()


def check_suffix(path: Path | None) -> None:
    """Refuse a name that does not say how to write the table; a device or FIFO, such as /dev/stdout, gets CSV."""
    if path is not None and path.suffix.lower() not in SUFFIXES and (path.is_file() or not path.exists()):
        raise ValueError(f"cannot tell the format of {path.name}: let it end in .csv, .tsv or .parquet")


def check_report() -> None:
    """Refuse a report that could not be made for want of a library."""
    from collidescope.show.html import plotly_js

    plotly_js()


def check_matrix_name(path: Path | None, n_classes: int) -> None:
    """Refuse JSON for more classes than it takes; the name of a file is never changed."""
    from collidescope.matrix import JSON_CLASSES

    if path is not None and path.suffix != ".npz" and n_classes > JSON_CLASSES:
        hint = f"let {path.name} end in .npz"
        raise ValueError(f"a matrix of {n_classes:,} classes is too large for JSON (at most {JSON_CLASSES:,}): {hint}")


def write_outputs(*outputs: Output) -> None:
    """Write every output that was asked for, and say so; a failure does not stop the rest, the exit code tells."""
    code = 0
    for what, path, write in outputs:
        if path is None:
            continue
        try:
            write(path)
        except (OSError, ValueError, ImportError) as error:
            code = max(code, BAD_INPUT if isinstance(error, ValueError) else FAILURE)  # a name, or an edited summary
            fail(f"the {what} was not written. {explained(error)}")
        else:
            State.written += (path,)
            say(f"{what}: {path}", "green")
    if code:
        raise typer.Exit(code)


def write_matrix(cm: CollisionMatrix, path: Path) -> None:
    """S as JSON, or in binary where ``path`` ends in .npz."""
    check_matrix_name(path, cm.n_classes)
    (cm.to_npz if path.suffix == ".npz" else cm.to_json)(path)


def page_of(summary: Callable[[], dict[str, Any]]) -> Callable[[Path], Any]:
    """What writes the report of a summary, which is made only where a report is asked for."""

    def write(path: Path) -> None:
        from collidescope.show import write_report

        write_report(summary(), path)

    return write


def matrix_text(cm: CollisionMatrix, summary: dict[str, Any], limit: Any = None) -> str:
    """S, the pairs that collide most, and what to do about them."""
    from collidescope._text import as_text, pairs_text

    lines = [as_text(cm, limit)]
    if 2 < cm.n_classes <= FEW_CLASSES:
        lines += ["\nMost colliding pairs, with 95% intervals:", pairs_text(cm, PAIRS)]
    advice = summary["what_to_do"]
    return "\n".join(lines + ["\nWhat to do about it:"] * bool(advice) + [f"- {for_terminal(line)}" for line in advice])


def for_terminal(sentence: str) -> str:
    r"""A sentence without the marks that only pages obey: many terminals print them.

    >>> for_terminal("labelled “\u2068قطة\u2069”")
    'labelled “قطة”'
    """
    return re.sub("[\u2068\u2069]", "", sentence)


def guard(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay.

    >>> guard("=1+1"), guard("-1"), guard("a;=1+1"), guard(3)
    ("'=1+1", '-1', "a;'=1+1", 3)
    """
    return FORMULA.sub(r"\1'", value) if isinstance(value, str) and not NUMBER.match(value) else value


def as_csv(table: pd.DataFrame, separator: str = ",") -> str:
    """The table as text, formulas disarmed."""
    safe = table.rename(columns=guard)
    for place, dtype in enumerate(table.dtypes):
        if dtype.kind not in "iufb":
            safe.isetitem(place, table.iloc[:, place].map(guard, na_action="ignore"))  # type: ignore[arg-type]
    return safe.to_csv(index=False, sep=separator, lineterminator="\n", float_format="%.6g")


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write ``table`` as the name of the file says; an existing file is replaced in one step."""
    from collidescope._store import write_bytes

    if separator := SUFFIXES.get(path.suffix.lower(), ","):
        write_bytes(path, as_csv(table, separator).encode())
    else:
        buffer = io.BytesIO()
        table.to_parquet(buffer, index=False)
        write_bytes(path, buffer.getvalue())


def posterior_table(posteriors: Any, classes: Any, numbers: Any, extra: pd.DataFrame | None = None) -> pd.DataFrame:
    """Number of the row, the columns ``extra``, the most likely class, a column ``p_CLASS`` for every class."""
    import numpy as np
    import pandas as pd

    from collidescope.tables.encoding import as_word

    likely = pd.Series(classes[np.nan_to_num(posteriors).argmax(axis=1)])
    unscored = np.isnan(posteriors).any(axis=1)
    frames = [pd.DataFrame({"row": numbers}), *([] if extra is None else [extra.reset_index(drop=True)])]
    likely = likely.astype(object).mask(unscored, None) if unscored.any() else likely
    scores = pd.DataFrame(posteriors, columns=[f"p_{as_word(name)}" for name in classes.tolist()])
    return pd.concat([*frames, likely.rename("predicted").to_frame(), scores], axis=1)
