"""Options that several commands share, each explained once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

READING = "Reading the table"
COLUMNS = "Columns and rows"
TRAINING = "Training"
RESULTS = "What comes out"

TableArgument = Annotated[
    Path, typer.Argument(metavar="TABLE", help="CSV, TSV (also .gz), Parquet, JSON lines or Excel.")
]
Label = Annotated[
    str | None, typer.Option("--label", "-l", metavar="COLUMN", help="The column that holds the classes.")
]
Header = Annotated[
    bool,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line names the columns. Without it they are called c1, c2, … (and --label 15 or "
        "--label -1 works too).",
        rich_help_panel=READING,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter", metavar="CHARACTER", help="Found out by itself; 'tab' for tabs.", rich_help_panel=READING
    ),
]
SkipLines = Annotated[
    int, typer.Option("--skip-lines", min=0, metavar="N", help="Lines above the table.", rich_help_panel=READING)
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="COLUMN", help="Leave a column out. Again for more.", rich_help_panel=COLUMNS),
]
Keep = Annotated[
    list[str] | None,
    typer.Option("--keep", metavar="COLUMN", help="Use a column though it looks like an id.", rich_help_panel=COLUMNS),
]
Category = Annotated[
    list[str] | None,
    typer.Option(
        "--category",
        metavar="COLUMN",
        help="Its values are names even if they look like numbers (a postcode, a region code).",
        rich_help_panel=COLUMNS,
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        "--group",
        metavar="COLUMN",
        help="Rows with the same value (one patient, one document) stay together in a fold, or the model would know "
        "them already. The column itself is not used.",
        rich_help_panel=COLUMNS,
    ),
]
SampleWeight = Annotated[
    str | None,
    typer.Option(
        "--sample-weight", metavar="COLUMN", help="How much each row counts; 0 leaves it out.", rich_help_panel=COLUMNS
    ),
]
Unique = Annotated[
    bool, typer.Option("--unique", help="Use rows that repeat, label included, once.", rich_help_panel=COLUMNS)
]
Rare = Annotated[
    str,
    typer.Option(
        metavar="error|drop|merge",
        help="What to do about classes with a single row: stop, leave them out, or join them into one class.",
        rich_help_panel=COLUMNS,
    ),
]
DropRare = Annotated[
    int,
    typer.Option(
        "--drop-rare", min=0, metavar="N", help="Leave out classes with fewer than N rows.", rich_help_panel=COLUMNS
    ),
]
Sample = Annotated[
    int | None,
    typer.Option(
        "--sample", min=20, metavar="N", help="Use N rows drawn at random: a first look.", rich_help_panel=COLUMNS
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE.html", help="Write the report, one page that works offline.", rich_help_panel=RESULTS
    ),
]
Matrix = Annotated[
    Path | None,
    typer.Option("--matrix", metavar="FILE.json", help="Write S for `collidescope merge`.", rich_help_panel=RESULTS),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print JSON for machines on standard output, and nothing else there.", rich_help_panel=RESULTS
    ),
]
Title = Annotated[str | None, typer.Option("--title", help="Of the report.", rich_help_panel=RESULTS)]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No notes and no progress, only results and errors.", rich_help_panel=RESULTS),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same result.", rich_help_panel=TRAINING)]
