"""Options that several commands share, each explained once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

#: Options by the panel of the help that they stand in.
reading: Callable[..., Any] = partial(typer.Option, rich_help_panel="Reading the table")
columns: Callable[..., Any] = partial(typer.Option, rich_help_panel="Columns and rows")
training: Callable[..., Any] = partial(typer.Option, rich_help_panel="Training")
results: Callable[..., Any] = partial(typer.Option, rich_help_panel="What comes out")
#: The name of a column, or names.
Column = str | None
Columns = list[str] | None

TableArgument = Annotated[
    Path, typer.Argument(metavar="TABLE", help="CSV, TSV (also .gz), Parquet, JSON lines or Excel.")
]
Label = Annotated[Column, typer.Option("--label", "-l", metavar="COLUMN", help="The column that holds the classes.")]

HEADER = "Whether the first line names the columns. Without it they are called c1, c2, … (and --label 15 or --label -1 "
HEADER += "works too)."
Header = Annotated[bool, reading("--header/--no-header", help=HEADER)]
Delimiter = Annotated[
    str | None, reading("--delimiter", metavar="CHARACTER", help="Detected by default; 'tab' for tabs.")
]
SkipLines = Annotated[int, reading("--skip-lines", min=0, metavar="N", help="Lines to skip above the table.")]

CATEGORY = "Its values are names even if they look like numbers (a postcode, a region code)."
GROUPS = "Rows with the same value (one patient, one document) stay together in a fold, or the model would know them "
GROUPS += "already. The column itself is not used."
RARE = "What to do about classes with a single row: stop, leave them out, or join them into one class."
Drop = Annotated[Columns, columns("--drop", metavar="COLUMN", help="Leave a column out. Repeat for more.")]
Keep = Annotated[Columns, columns("--keep", metavar="COLUMN", help="Use a column though it looks like an id.")]
Category = Annotated[Columns, columns("--category", metavar="COLUMN", help=CATEGORY)]
Groups = Annotated[Column, columns("--groups", "--group", metavar="COLUMN", help=GROUPS)]
SampleWeight = Annotated[
    Column, columns("--sample-weight", metavar="COLUMN", help="How much each row counts; 0 leaves it out.")
]
Unique = Annotated[bool, columns("--unique", help="Use rows that repeat, label included, only once.")]
Rare = Annotated[str, columns(metavar="error|drop|merge", help=RARE)]
DropRare = Annotated[int, columns("--drop-rare", min=0, metavar="N", help="Leave out classes with fewer than N rows.")]
Sample = Annotated[
    int | None, columns("--sample", min=20, metavar="N", help="Use N rows drawn at random: a first look.")
]

Report = Annotated[
    Path | None, results("--report", metavar="FILE.html", help="Write the report, one page that works offline.")
]
Matrix = Annotated[Path | None, results("--matrix", metavar="FILE.json", help="Write S for `collidescope merge`.")]
Json = Annotated[bool, results("--json", help="Print JSON for machines on standard output, and nothing else there.")]
Title = Annotated[str | None, results("--title", help="Title of the report.")]
Quiet = Annotated[bool, results("--quiet", "-q", help="No notes and no progress, only results and errors.")]
Seed = Annotated[int, training("--seed", min=0, help="Same seed, same result.")]
