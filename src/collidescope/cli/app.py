"""The application: its commands, in the order in which a new user needs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from collidescope.cli import _options as opt
from collidescope.cli import decisions, fitting, matrices, predicting, votes
from collidescope.cli._console import guarded, set_quiet, show

app = typer.Typer(
    name="collidescope",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        import collidescope

        show(f"collidescope {collidescope.__version__}")
        raise typer.Exit


@app.callback(
    epilog="Exit codes: 0 all is well; 2 something about the input (an option, a file, a column); 1 an unexpected "
    "failure; 130 ended by Ctrl-C. Results go to standard output, notes and progress to standard error."
)
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Which classes can your data not tell apart, and how sure is that?

    Show the same input again: how often would it get another label? That is the collision matrix S. It says which
    classes overlap, what more rows could still change and what they could not, which classes to merge, and where a
    classifier can still improve. Every number comes with an interval.

    Ten minutes: `collidescope fit table.csv --label COLUMN --report report.html`, then open the report.
    """


@guarded
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE.html", help="The page to write.")] = matrices.REPORT,
    quiet: opt.Quiet = False,
) -> None:
    """The main job on handwritten digits that come with scikit-learn: a minute or two, nothing to prepare."""
    from collidescope.cli._writing import check_outputs
    from collidescope.demo import main as run

    set_quiet(quiet)
    check_outputs([], [out])
    run(out, verbose=0 if quiet else 1)


PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start here": (demo, fitting.fit),
    "Go on from a model or a matrix": (
        *(predicting.predict, decisions.audit),
        *(matrices.merge, matrices.limit, matrices.report),
    ),
    "From your own numbers": (matrices.posteriors, matrices.count, votes.votes),
    "Decide what to do next": (
        *(decisions.rows, decisions.columns, decisions.groups),
        *(decisions.ceilings, decisions.compare, decisions.split),
    ),
}
for _panel, _commands in PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
