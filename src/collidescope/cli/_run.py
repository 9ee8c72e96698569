"""Options that several commands share, each explained once, and what every command does with them.

A command says by name which of the options of :class:`Options` it offers, and gets them as its
first argument. What it prints comes before anything is written; outputs are tried before the work.
Heavy libraries are imported when a command runs, for ``--help`` needs none.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import shlex
from collections.abc import Callable, Sequence
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
    printable,
    say,
    show,
    show_json,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from collidescope._checks import Array, IntArray
    from collidescope.applications._inputs import Record
    from collidescope.classifier import CollisionClassifier
    from collidescope.matrix import CollisionMatrix

#: How a table is written, by the name of its file: separated by this, or as Parquet.
SUFFIXES = {".csv": ",", ".tsv": "\t", ".txt": "\t", ".parquet": "", ".pq": ""}
#: Spreadsheets run a cell that starts with one of these as a formula; where lists are separated by
#: semicolons, what follows one is a cell too, and so is what follows a line break.
FORMULA = r"(?=\s*[=+\-@]|[\t\r])"


def panel(panel: str | None, declare: Any = typer.Option) -> Callable[..., Any]:
    """What declares an option in this panel of the help, by its metavar, help and names."""

    def option(metavar: str | None, says: str, *names: str, **more: Any) -> Any:
        return declare(
            *names, metavar=metavar, help=says, rich_help_panel=panel, **more
        )

    return option


argument = panel(None, typer.Argument)
option = panel(None)
reading = panel("Reading the table")
columns = panel("Columns and rows")
training = panel("Training")
results = panel("What comes out")
images = panel("Images")

#: The name of a column, names, a file.
Column = str | None
Columns = list[str] | None
File = Path | None

Table = Annotated[
    Path,
    argument(
        "TABLE",
        "CSV, TSV (also .gz), Parquet, JSON lines or Excel.",
    ),
]
#: For commands that also take images.
TableOrImages = Annotated[
    Path,
    argument(
        "TABLE",
        "CSV, TSV (also .gz), Parquet, JSON lines or Excel; or a folder of images.",
    ),
]
Drop = Annotated[
    Columns,
    columns("COLUMN", "Leave a column out. Repeat for more."),
]
Keep = Annotated[
    Columns,
    columns("COLUMN", "Use a column even though it looks like an id. Repeat for more."),
]
Sample = Annotated[
    int | None,
    columns("N", "Use N rows drawn at random, for a first look.", min=20),
]
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
        Column,
        option("COLUMN", "The column that holds the classes.", "--label", "-l"),
    ] = None
    out: Annotated[
        File,
        option("FILE", "Write the table: .csv, .tsv or .parquet.", "--out", "-o"),
    ] = None
    report: Annotated[
        File,
        results("FILE.html", "Write the report, one page that works offline."),
    ] = None
    matrix: Annotated[
        File,
        results("FILE.json", "Write S for `collidescope merge`."),
    ] = None
    as_json: Annotated[
        bool,
        results(None, "Print only JSON, for machines, to standard output.", "--json"),
    ] = False
    title: Annotated[str | None, results(None, "Title of the report.")] = None
    quiet: Annotated[
        bool,
        results(
            None, "Only results and errors: no notes, no progress.", "--quiet", "-q"
        ),
    ] = False
    header: Annotated[
        bool,
        reading(
            None,
            "Whether the first line names the columns; else they are c1, c2, … "
            "(and --label 15 or --label -1 works too).",
        ),
    ] = True
    delimiter: Annotated[
        str | None,
        reading("CHARACTER", "Detected by default; 'tab' for tabs."),
    ] = None
    skip_lines: Annotated[
        int, reading("N", "Lines to skip above the table.", min=0)
    ] = 0

    def start(
        self, *inputs: Path | None, outputs: tuple[Path | None, ...] = ()
    ) -> Self:
        """Before any work: can all outputs be written, apart from each other and the inputs?"""
        from collidescope._store import check_output
        from collidescope.show.html import page_template

        State.quiet = self.quiet
        read = [path for path in inputs if path is not None]
        named = (self.out, self.report, self.matrix, *outputs)
        written = [path for path in named if path is not None]
        for place, path in enumerate(written):
            check_output(path)
            if is_device(path):  # takes more than one result, and any format
                continue
            _check_apart(path, read, "is the file that is read")
            _check_apart(path, written[:place], "is named for two results")
            if path is self.out and path.suffix.lower() not in SUFFIXES:
                raise ValueError(
                    f"cannot tell the format of {path.name}: let it end in .csv, .tsv "
                    "or .parquet"
                )
        if self.report is not None:
            page_template()  # which needs jinja2
        return self

    def about(self, file: str, label: str | None, **more: Any) -> Record:
        """Where the rows come from, for the report; ``more`` of what summarise takes."""
        known = {"file": file, "label": label, "command": typed(), "saved": self.matrix}
        return known | more

    def tell(
        self,
        words: str | None,
        data: Record,
        *more: Output,
        table: pd.DataFrame | None = None,
        cm: CollisionMatrix | None = None,
        page: Callable[[], Record] | None = None,
    ) -> None:
        """Print the answer (``data`` as JSON where asked for), then write what was asked for.

        The answer is in ``words``, or a ``table`` that is not written. ``more`` are outputs of this
        command alone. ``page`` makes the summary of the report, by default ``data``.
        """
        from collidescope.show import write_report

        if self.as_json:
            show_json(data)
        elif words is not None:
            show(words)
        elif table is not None and self.out is None:
            show(as_csv(table).removesuffix("\n"))
        outputs = list(more)
        if table is not None:
            write = functools.partial(write_table, table)
            outputs.append(Output(f"table of {len(table):,} rows", self.out, write))
        if cm is not None:
            outputs.append(
                Output("matrix", self.matrix, functools.partial(write_matrix, cm))
            )

        def write_page(path: Path) -> None:
            write_report(page() if page else data, path)

        write_all([*outputs, Output("report", self.report, write_page)])

    def finish(
        self,
        cm: CollisionMatrix,
        summary: Record,
        *more: Output,
        said: str = "",
        table: pd.DataFrame | None = None,
    ) -> None:
        """Tell S, the pairs that collide most, what to do about them, and what else is ``said``."""
        from collidescope._text import TEXT_CLASSES, as_text, pairs_text

        lines = [as_text(cm, "--matrix FILE.json writes S")]
        if 2 < cm.n_classes <= TEXT_CLASSES:  # of more, the text itself has them
            title = "\nMost colliding pairs"
            if summary["low"] is not None:
                title += ", with 95% intervals"
            lines += [f"{title}:", pairs_text(cm, 5)]
        lines.append("\nWhat to do about it:")
        lines += [f"- {line}" for line in summary["what_to_do"]]
        if said:
            lines.append(said)
        self.tell("\n".join(lines), summary, *more, cm=cm, table=table)


@dataclass(frozen=True)
class Output:
    """A result that may be written: what it is, where to, and the function that writes it."""

    what: str
    path: Path | None
    write: Callable[[Path], Any]


def picture(what: str, path: Path | None, plot: Callable[[], Any]) -> Output:
    """What writes the figure of the axes that ``plot`` draws."""
    return Output(what, path, lambda file: plot().figure.savefig(file))


def written_mapping(path: Path | None, mapping: dict[Any, str] | None) -> Output:
    """What writes class → group: as JSON where ``path`` ends so, else as a table."""

    def write(file: Path) -> None:
        import pandas as pd

        from collidescope._store import write_bytes

        if mapping is None:
            raise ValueError("merging is no option of this plan")
        if file.suffix.lower() == ".json":
            named = {str(name): group for name, group in mapping.items()}
            text = json.dumps(named, indent=1, ensure_ascii=False)
            write_bytes(file, text.encode())
        else:
            table = pd.DataFrame(mapping.items(), columns=["class", "group"])
            write_table(table, file)

    return Output("mapping", path, write)


def split_names(text: str) -> list[str]:
    """The names in A,B."""
    return [name.strip() for name in text.split(",")]


def write_all(outputs: Sequence[Output]) -> None:
    """Write each; a failure does not stop the rest: the exit code tells."""
    code = 0
    for output in outputs:
        if output.path is None:
            continue
        try:
            output.write(output.path)
        except (ValueError, OSError, ImportError) as error:
            # A ValueError is about a name, or a summary that was edited.
            of_input = isinstance(error, ValueError)
            code = BAD_INPUT if of_input else max(code, FAILURE)
            fail(f"Error: the {output.what} was not written. {explained(error)}")
        else:
            State.written += (output.path,)
            say(f"{output.what}: {output.path}", "green")
    if code:
        raise typer.Exit(code)


def is_device(path: Path) -> bool:
    """Is it a device, a pipe or an open stream, such as /dev/stdout, behind which may be a file?"""
    if re.fullmatch(r"/dev/(stdout|stderr|fd/\d+)", str(path)):
        return True
    return path.exists() and not path.is_file()


def _check_apart(path: Path, others: Sequence[Path], what: str) -> None:
    for other in others:
        same = path.exists() and other.exists() and path.samefile(other)
        if same or path.resolve() == other.resolve():
            raise ValueError(f"{path} {what}: write to another one")


def typed(*left_out: str) -> str:
    """The running command as it was typed, less what it writes and the options ``left_out``."""
    context = State.context
    assert context is not None
    outputs = ("out", "report", "matrix", "title", "save", "copied", "as_json", "quiet")
    arguments: list[str] = []
    options: list[str] = []
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if not given or name in (*outputs, *left_out):
            continue
        value = context.params[name]
        if parameter.param_type_name == "argument":
            arguments.append(str(value))
        else:
            options += _option_words(parameter, value)
    return shlex.join(["collidescope", str(context.info_name), *arguments, *options])


def _option_words(parameter: Any, value: Any) -> list[str]:
    """``--drop a --drop b``, ``--no-header``: an option with its value as one would type it."""
    name = next(name for name in parameter.opts if name.startswith("--"))
    if parameter.is_flag:
        return [name if value else parameter.secondary_opts[0]]
    values = value if parameter.multiple else [value]
    return [word for each in values for word in (name, str(each))]


def command(
    *shared: str, **own: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that offers the options ``shared`` behind its own, and gets them first, as ``run``.

    ``own`` are shared options that it declares in another way: (annotation, default).
    """
    names = [field.name for field in fields(Options)]
    offered = [name for name in names if name in shared or name in own]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @guarded()
        @functools.wraps(function)
        def run(context: typer.Context, **given: Any) -> None:
            from collidescope.cli._inputs import Run

            State.context = context
            options = {name: given.pop(name) for name in offered}
            function(Run(**options), **given)

        # A class of a module that is not imported for --help.
        function.__annotations__.pop("run")
        every = dict(inspect.signature(function, eval_str=True).parameters)
        common = inspect.signature(Options, eval_str=True).parameters
        del every["run"]
        for name in offered:
            parameter = common[name]
            if name in own:
                annotation, default = own[name]
                parameter = parameter.replace(annotation=annotation, default=default)
            every[name] = parameter
        # The label is asked for first.
        options = sorted(every.values(), key=lambda option: option.name != "label")
        kind = inspect.Parameter.KEYWORD_ONLY
        keyword = [option.replace(kind=kind) for option in options]
        keyword.insert(0, inspect.Parameter("context", kind, annotation=typer.Context))
        run.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in keyword}
        return run

    return decorate


def load(path: Path) -> Any:
    """A model, a matrix, or a summary (a dict), told apart by what is in the file."""
    from collidescope._store import read_json, regular_file
    from collidescope.matrix import FORMAT

    with open(regular_file(path), "rb") as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"PK"):
        return cs.CollisionMatrix.from_npz(path)
    if not start.startswith(b"{"):
        return cs.load(path)
    source = read_json(path)
    kind = source.get("format") if isinstance(source, dict) else None
    if kind == FORMAT:
        return cs.CollisionMatrix.from_dict(source)
    if kind == "collidescope.summary":
        return source
    raise ValueError(
        f"{path} is JSON, but neither a matrix (written by --matrix) nor a summary "
        "(written by --json) of collidescope"
    )


def load_model(path: Path) -> CollisionClassifier:
    """A model, and nothing else."""
    source = load(path)
    if not hasattr(source, "predict_proba"):
        raise ValueError(
            f"{path} is not a model: give a file written by `collidescope fit … --save "
            "model.collide`"
        )
    return source


def load_matrix(path: Path) -> CollisionMatrix:
    """A matrix, or that of a model."""
    return matrix_of(load(path), path)


def matrix_of(source: object, path: Path) -> CollisionMatrix:
    """The matrix in what was loaded from ``path``."""
    if isinstance(source, dict):
        raise ValueError(
            f"{path} is a summary, which rounds S: give the model, or the JSON of "
            "--matrix"
        )
    cm: Any = getattr(source, "collision_matrix_", source)
    return cm


def check_matrix_name(path: Path | None, n_classes: int) -> None:
    """Refuse JSON for more classes than it takes; the name of a file is never changed."""
    from collidescope.matrix import JSON_CLASSES

    if path is not None and path.suffix != ".npz" and n_classes > JSON_CLASSES:
        raise ValueError(
            f"a matrix of {n_classes:,} classes is too large for JSON (at most "
            f"{JSON_CLASSES:,}): let {path.name} end in .npz"
        )


def write_matrix(cm: CollisionMatrix, path: Path) -> None:
    """S as JSON, or in binary where ``path`` ends in .npz."""
    check_matrix_name(path, cm.n_classes)
    if path.suffix == ".npz":
        cm.to_npz(path)
    else:
        cm.to_json(path)


def guard(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay."""
    number = r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?"
    if not isinstance(value, str) or re.fullmatch(number, value):
        return value
    return re.sub(rf"(^|[;\t\r\n]){FORMULA}", r"\1'", value)


def unguard(value: Any) -> Any:
    """What :func:`guard` made safe, as it was.

    >>> unguard(guard("=A()")), unguard("it's")
    ('=A()', "it's")
    """
    if not isinstance(value, str):
        return value
    return re.sub(rf"(^|[;\t\r\n])'{FORMULA}", r"\1", value)


def as_csv(table: pd.DataFrame, separator: str = ",") -> str:
    """The table as text, formulas disarmed; rates have six digits, other numbers all they have."""

    def written(column: pd.Series) -> pd.Series:
        kind = column.dtype.kind
        if kind not in "iufb":
            return column.map(guard, na_action="ignore")
        if kind == "f" and column.abs().max() <= 1:
            return column.map("{:.6g}".format, na_action="ignore")
        return column

    safe = table.apply(written).rename(columns=guard)
    return safe.to_csv(index=False, sep=separator, lineterminator="\n")


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write ``table`` as the name of the file says; an existing file is replaced in one step."""
    from collidescope._store import write_bytes

    separator = SUFFIXES.get(path.suffix.lower(), ",")
    if is_device(path):  # which may be a terminal, and obey what stands in cells
        write_bytes(path, printable(as_csv(table)).encode())
    elif separator:
        write_bytes(path, as_csv(table, separator).encode())
    else:
        write_bytes(path, table.to_parquet(index=False))


def posterior_table(
    posteriors: npt.NDArray[np.floating],
    classes: Array,
    numbers: Sequence[int] | IntArray,
    before: pd.DataFrame | None = None,
    behind: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Number of the row, the most likely class, a column ``p_CLASS`` for every class.

    The columns of ``before`` stand behind the number, those of ``behind`` at the end; a name that
    is taken gets "(input)" behind it.
    """
    import numpy as np
    import pandas as pd

    from collidescope.tables.cells import as_word

    likeliest = np.nan_to_num(posteriors).argmax(axis=1)
    likely = pd.Series(classes[likeliest], name="predicted")
    unscored = np.isnan(posteriors).any(axis=1)
    if unscored.any():
        likely = likely.astype(object).mask(unscored, None)
    names = [f"p_{as_word(name)}" for name in classes.tolist()]
    taken = {"row", "predicted", *names}
    parts = [
        pd.DataFrame({"row": numbers}),
        _renamed(before, taken),
        likely,
        pd.DataFrame(posteriors, columns=names),
        _renamed(behind, taken),
    ]
    return pd.concat(parts, axis=1)


def _renamed(table: pd.DataFrame | None, taken: set[str]) -> pd.DataFrame | None:
    if table is None:
        return None
    new = {name: f"{name} (input)" for name in table if str(name) in taken}
    taken |= {str(name) for name in table}
    return table.reset_index(drop=True).rename(columns=new)
