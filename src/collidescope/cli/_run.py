"""Options that several commands share, each explained once, and what every command does with them.

A command says by name which of the options of :class:`Options` it offers, and gets them as its first argument. What it
prints comes before anything is written; outputs are tried before the work. Heavy libraries are imported when a command
runs, for ``--help`` needs none.
"""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

import collidescope as cs
from collidescope.cli._console import (
    BAD_INPUT,
    FAILURE,
    State,
    explained,
    fail,
    guarded,
    say,
    show,
    show_json,
)

if TYPE_CHECKING:
    import pandas as pd

    from collidescope.matrix import CollisionMatrix

#: How a table is written, by the name of its file: separated by this, or as Parquet.
SUFFIXES = {".csv": ",", ".tsv": "\t", ".txt": "\t", ".parquet": "", ".pq": ""}
#: Spreadsheets run a cell that starts with one of these as a formula; where lists are separated by semicolons, what
#: follows one is a cell too, and so is what follows a line break that lost its quotes.
FORMULA = re.compile(r"(^|[;\t\r\n])(?=\s*[=+\-@]|[\t\r])")
NUMBER = re.compile(r"^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$")


def panel(panel: str | None, declare: Any = typer.Option) -> Callable[..., Any]:
    """What declares an option in this panel of the help: by its metavar (None for flags), help, and further names."""

    def option(metavar: str | None, says: str, *names: str, **more: Any) -> Any:
        return declare(*names, metavar=metavar, help=says, rich_help_panel=panel, **more)

    return option


argument = panel(None, typer.Argument)
option, reading, columns = panel(None), panel("Reading the table"), panel("Columns and rows")
training, results = panel("Training"), panel("What comes out")
#: The name of a column, names, a file.
Column = str | None
Columns = list[str] | None
File = Path | None

HEADER = "Whether the first line names the columns; else they are c1, c2, … (and --label 15 or --label -1 works too)."
Table = Annotated[Path, argument("TABLE", "CSV, TSV (also .gz), Parquet, JSON lines or Excel.")]
Drop = Annotated[Columns, columns("COLUMN", "Leave a column out. Repeat for more.")]
Keep = Annotated[Columns, columns("COLUMN", "Use a column though it looks like an id.")]
Sample = Annotated[int | None, columns("N", "Use N rows drawn at random: a first look.", min=20)]
Seed = Annotated[int, training(None, "Same seed, same result.", min=0)]
#: ``report`` of the commands whose main job it is.
PAGE = (
    Annotated[Path, option("FILE.html", "The page to write.", "--out", "-o")],
    Path("report.html"),
)

#: Options that commands take together.
READING = ("label", "header", "delimiter", "skip_lines")
PRINTING = ("as_json", "quiet")
ESTIMATING = (*READING, "report", "matrix", "title", *PRINTING)


@dataclass
class Options:
    """Shared options; a command that does not offer one has its default."""

    label: Annotated[
        Column, option("COLUMN", "The column that holds the classes.", "--label", "-l")
    ] = None
    out: Annotated[
        File, option("FILE", "Write the table: .csv, .tsv or .parquet.", "--out", "-o")
    ] = None
    report: Annotated[
        File, results("FILE.html", "Write the report, one page that works offline.")
    ] = None
    matrix: Annotated[File, results("FILE.json", "Write S for `collidescope merge`.")] = None
    as_json: Annotated[
        bool, results(None, "Print only JSON, for machines, to standard output.", "--json")
    ] = False
    title: Annotated[str | None, results(None, "Title of the report.")] = None
    quiet: Annotated[
        bool, results(None, "No notes and no progress, only results and errors.", "--quiet", "-q")
    ] = False
    header: Annotated[bool, reading(None, HEADER)] = True
    delimiter: Annotated[
        str | None, reading("CHARACTER", "Detected by default; 'tab' for tabs.")
    ] = None
    skip_lines: Annotated[int, reading("N", "Lines to skip above the table.", min=0)] = 0

    def start(self, *inputs: Path | None, outputs: tuple[Path | None, ...] = ()) -> Self:
        """Before any work: can all outputs be written, apart from each other and from the inputs?"""
        from collidescope._store import check_output
        from collidescope.show.html import page_template

        State.quiet = self.quiet
        read = [path for path in inputs if path is not None]
        written = [
            path for path in (self.out, self.report, self.matrix, *outputs) if path is not None
        ]
        for place, path in enumerate(written):
            check_output(path)
            if path.exists() and not path.is_file():  # a device or FIFO takes more than one
                continue
            for other in (*read, *written[:place]):
                if path.resolve() == other.resolve() or (
                    path.exists() and other.exists() and path.samefile(other)
                ):
                    doing = (
                        "is the file that is read" if other in read else "is named for two results"
                    )
                    raise ValueError(f"{path} {doing}: write to another one")
            if (
                path is self.out and path.suffix.lower() not in SUFFIXES
            ):  # a device, such as /dev/stdout, gets CSV
                raise ValueError(
                    f"cannot tell the format of {path.name}: let it end in .csv, .tsv or .parquet"
                )
        if self.report is not None:
            page_template()  # which needs jinja2
        return self

    def about(
        self, command: str, table: Path, label: str | None, *options: str, **more: Any
    ) -> dict[str, Any]:
        """Where the rows come from, for the report: ``command`` as it was typed; ``more`` of what summarise takes."""
        typed = [
            "collidescope",
            command,
            str(table),
            *(["--label", label] if label is not None else []),
            *options,
        ]
        return {
            "file": table.name,
            "label": label,
            "command": shlex.join(typed),
            "saved": self.matrix,
        } | more

    def tell(
        self,
        words: str | None,
        data: dict[str, Any],
        *more: Any,
        table: Any = None,
        cm: Any = None,
        page: Any = None,
    ) -> None:
        """Print the answer (``data`` as JSON where asked for), then write what was asked for.

        The answer is in ``words``, or a ``table`` that is not written. ``more`` are outputs of this command alone:
        (what it is, where to, the function that writes it). ``page`` makes the summary of the report, by default
        ``data``. A failure to write does not stop the rest: the exit code tells.
        """
        from collidescope.show import write_report

        if self.as_json:
            show_json(data)
        elif words is not None:
            show(words)
        elif table is not None and self.out is None:
            show(as_csv(table).removesuffix("\n"))
        outputs = [
            *more,
            (
                "table" if table is None else f"table of {len(table):,} rows",
                self.out,
                write_table,
                table,
            ),
        ]
        outputs += [("matrix", self.matrix, write_matrix, cm)]
        outputs += [
            ("report", self.report, lambda path: write_report(page() if page else data, path))
        ]
        code = 0
        for what, path, write, *content in outputs:
            if path is None:
                continue
            try:
                write(path, *content)
            except (OSError, ValueError, ImportError) as error:
                code = max(
                    code, BAD_INPUT if isinstance(error, ValueError) else FAILURE
                )  # a name, an edited summary
                fail(f"Error: the {what} was not written. {explained(error)}")
            else:
                State.written += (path,)
                say(f"{what}: {path}", "green")
        if code:
            raise typer.Exit(code)

    def finish(
        self, cm: CollisionMatrix, summary: dict[str, Any], *more: Any, said: str = "", **kw: Any
    ) -> None:
        """Tell S, the pairs that collide most, what to do about them, and whatever else is ``said``."""
        from collidescope._text import TEXT_CLASSES, as_text, pairs_text

        lines = [as_text(cm)]
        if 2 < cm.n_classes <= TEXT_CLASSES:  # of more, the text itself has them
            lines += ["\nMost colliding pairs, with 95% intervals:", pairs_text(cm, 5)]
        if advice := summary["what_to_do"]:
            lines += ["\nWhat to do about it:", *(f"- {line}" for line in advice)]
        self.tell("\n".join([*lines, *[said] * bool(said)]), summary, *more, cm=cm, **kw)


def command(*shared: str, **own: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that offers the options ``shared`` behind its own parameters, and gets them as its first argument.

    ``own`` are shared options that it declares in another way: (annotation, default).
    """
    offered = [field.name for field in fields(Options) if field.name in (*shared, *own)]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @guarded()
        @functools.wraps(function)
        def run(**given: Any) -> None:
            from collidescope.cli._inputs import Run

            function(Run(**{name: given.pop(name) for name in offered}), **given)

        function.__annotations__.pop("run")  # a class of a module that is not imported for --help
        every, common = (
            dict(inspect.signature(part, eval_str=True).parameters) for part in (function, Options)
        )
        del every["run"]
        for name in offered:
            kind, default = own.get(name, (common[name].annotation, common[name].default))
            every[name] = common[name].replace(annotation=kind, default=default)
        options = sorted(
            every.values(), key=lambda option: option.name != "label"
        )  # which is asked for first
        keyword = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
        run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in keyword}
        return run

    return decorate


def load(path: Path, wanted: str = "") -> Any:
    """A model, a matrix, or a summary (a dict), told apart by what is in the file; or only the ``wanted`` one."""
    from collidescope._store import read_json, regular_file
    from collidescope.matrix import FORMAT

    with open(regular_file(path), "rb") as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"PK"):
        source: Any = cs.CollisionMatrix.from_npz(path)
    elif not start.startswith(b"{"):
        source = cs.load(path)
    else:
        source = read_json(path)
        kind = source.get("format") if isinstance(source, dict) else None
        if kind not in (FORMAT, "collidescope.summary"):
            rest = "(written by --matrix) nor a summary (written by --json) of collidescope"
            raise ValueError(f"{path} is JSON, but neither a matrix {rest}")
        source = cs.CollisionMatrix.from_dict(source) if kind == FORMAT else source
    if wanted == "model" and not hasattr(source, "predict_proba"):
        raise ValueError(
            f"{path} is no model: give a file written by `collidescope fit … --save model.collide`"
        )
    if wanted == "matrix" and isinstance(source, dict):
        raise ValueError(
            f"{path} is a summary, which rounds S: give the model, or the JSON of --matrix"
        )
    return getattr(source, "collision_matrix_", source) if wanted == "matrix" else source


def check_matrix_name(path: Path | None, n_classes: int) -> None:
    """Refuse JSON for more classes than it takes; the name of a file is never changed."""
    from collidescope.matrix import JSON_CLASSES

    if path is not None and path.suffix != ".npz" and n_classes > JSON_CLASSES:
        hint = f"let {path.name} end in .npz"
        raise ValueError(
            f"a matrix of {n_classes:,} classes is too large for JSON (at most {JSON_CLASSES:,}): {hint}"
        )


def write_matrix(path: Path, cm: CollisionMatrix) -> None:
    """S as JSON, or in binary where ``path`` ends in .npz."""
    check_matrix_name(path, cm.n_classes)
    (cm.to_npz if path.suffix == ".npz" else cm.to_json)(path)


def guard(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay."""
    return (
        FORMULA.sub(r"\1'", value) if isinstance(value, str) and not NUMBER.match(value) else value
    )


def as_csv(table: pd.DataFrame, separator: str = ",") -> str:
    """The table as text, formulas disarmed; rates have six digits, other numbers (ids with gaps, say) all they have."""

    def written(column: pd.Series) -> pd.Series:
        if column.dtype.kind not in "iufb":
            return column.map(guard, na_action="ignore")
        rates = column.dtype.kind == "f" and column.abs().max() <= 1
        return column.map("{:.6g}".format, na_action="ignore") if rates else column

    return (
        table.apply(written)
        .rename(columns=guard)
        .to_csv(index=False, sep=separator, lineterminator="\n")
    )


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write ``table`` as the name of the file says; an existing file is replaced in one step."""
    from collidescope._store import write_bytes

    separator = SUFFIXES.get(path.suffix.lower(), ",")
    write_bytes(
        path, as_csv(table, separator).encode() if separator else table.to_parquet(index=False)
    )


def posterior_table(
    posteriors: Any, classes: Any, numbers: Any, extra: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Number of the row, the columns ``extra``, the most likely class, a column ``p_CLASS`` for every class."""
    import numpy as np
    import pandas as pd

    from collidescope.tables.encoding import as_word

    likely = pd.Series(classes[np.nan_to_num(posteriors).argmax(axis=1)], name="predicted")
    if (unscored := np.isnan(posteriors).any(axis=1)).any():
        likely = likely.astype(object).mask(unscored, None)
    scores = pd.DataFrame(posteriors, columns=[f"p_{as_word(name)}" for name in classes.tolist()])
    return pd.concat([pd.DataFrame({"row": numbers}), extra, likely, scores], axis=1)
