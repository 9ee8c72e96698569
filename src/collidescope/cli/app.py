"""The application: its commands, in the order in which a new user needs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

import collidescope as cs
from collidescope.cli._console import say, show
from collidescope.cli._run import PAGE, command
from collidescope.cli.estimating import count, fit, posteriors, votes
from collidescope.cli.using import audit, ceilings, columns, compare, groups, limit, merge, predict, report, rows, split

if TYPE_CHECKING:
    from collidescope.cli._inputs import Run

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
        show(f"collidescope {cs.__version__}")
        raise typer.Exit


EPILOG = "Exit codes: 0 all is well; 2 something about the input (an option, a file, a column); 1 an unexpected "
EPILOG += "failure; 130 ended by Ctrl-C. Results go to standard output, notes and progress to standard error."
VERSION = typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")


@app.callback(epilog=EPILOG)
def main(version: Annotated[bool, VERSION] = False) -> None:
    """Which classes can your data not tell apart, and how sure is that?

    Show the same input again: how often would it get another label? That is the collision matrix S. It says which
    classes overlap, what more rows could still change and what they could not, which classes to merge, and where a
    classifier can still improve. Every number comes with an interval.

    Ten minutes: `collidescope fit table.csv --label COLUMN --report report.html`, then open the report.
    """


@command("quiet", report=PAGE)
def demo(run: Run) -> None:
    """The main job on handwritten digits that come with scikit-learn: a minute or two, nothing to prepare."""
    from sklearn.datasets import load_digits

    run.start()
    X, y = load_digits(return_X_y=True)
    say(f"Which digits in {len(y):,} images of 8×8 pixels cannot be told apart? (a minute or two)")
    model = cs.CollisionClassifier(random_state=0, verbose=int(not run.quiet)).fit(X, y)
    about = {"file": "scikit-learn’s digits", "label": "digit"}
    summary = cs.summarise(model, X, y, image_shape=(8, 8), title="Which handwritten digits collide?", about=about)
    run.finish(model.collision_matrix_, summary)


PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start here": (demo, fit),
    "Go on from a model or a matrix": (predict, audit, merge, limit, report),
    "From your own numbers": (posteriors, count, votes),
    "Decide what to do next": (rows, columns, groups, ceilings, compare, split),
}
for _panel, _commands in PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
