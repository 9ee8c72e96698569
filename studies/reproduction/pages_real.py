"""Sections of docs/reproduction.md on real data and on divergences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from studies.markdown import table
from studies.reproduction import figures_mnist, figures_tables, tabular
from studies.reproduction import mnist as mnist_cells
from studies.reproduction.tables import measured, not_again
from studies.store import Result, by_part, results


def sections(figures: Path) -> list[str]:
    """All of them, those without results left out."""
    made = [mnist(figures), tables(figures), counted(figures), divergences(figures)]
    return [section for section in made if section]


def _range(values: Sequence[float], digits: int = 4) -> str:
    """Mean, and the ends over runs."""
    text = f"{np.mean(values):.{digits}f}"
    if len(values) < 2:
        return text
    return f"{text} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def mnist(figures: Path) -> str:
    """Figures 6, 7 and 10."""
    records = sorted(results("mnist"), key=lambda record: record["cell"]["seed"])
    if not records:
        return ""
    figures_mnist.draw_matrix(records[0], figures / "mnist-s.svg")
    figures_mnist.draw_pairs(records[0], figures / "mnist-pairs.svg")
    figures_mnist.draw_ambiguous(records[0]["result"], figures / "mnist-ambiguous.png")
    found = [record["result"] for record in records]
    first = found[0]
    held_out = [each["held_out"] for each in found]
    collisions = [_collision(pair) for pair in first["top"]]
    low, high = first["pber_interval"]
    return f"""## MNIST

All 60,000 training images, five folds, every image scored by a network that did not train on it: the
default, {len(found)} runs; in brackets the ends over runs. What the paper's own network of pairs says
is [in the paper in one table](paper.md#at-the-papers-size).

![S of MNIST](figures/mnist-s.svg)

The ten largest collisions, 95% intervals (first run):

{table(" | rate | interval", collisions)}

![The largest pairs](figures/mnist-pairs.svg)

PBER {_range([each["pber"] for each in found])}, and for the first run, with a 95% interval,
{first["pber"]:.4f} ({low:.4f} to {high:.4f}). Held-out posteriors: accuracy
{_range([each["accuracy"] for each in held_out])}, calibration error
{_range([each["calibration_error"] for each in held_out])}. On the 10,000 test images, with the five
networks averaged, accuracy {_range([each["test"]["accuracy"] for each in found])} and Brier score
{_range([each["test"]["brier"] for each in found])}.

{_doubts(held_out)}

Ambiguous images with their held-out posteriors (the paper's figures of images and posteriors): the
clearest 0, the most even of each pair, the most uncertain.

![Ambiguous images](figures/mnist-ambiguous.png)

{_by_algorithm_2(figures)}

{measured(records)}"""


def _doubts(held_out: Sequence[Result]) -> str:
    """How many images are clear or split, and how often their labels agree."""
    clear = [each["one_hot"] for each in held_out]
    split = [each["split"] for each in held_out]
    return f"""Images that it finds clear (a posterior above {mnist_cells.ONE_HOT:g}):
{np.mean([each["images"] for each in clear]):,.0f}, of which
{np.mean([each["first_right"] for each in clear]):.2%} are labelled so; split (two above
{mnist_cells.SPLIT:g}): {np.mean([each["images"] for each in split]):,.0f}, of which
{np.mean([each["either_right"] for each in split]):.2%} have one of the two as their label."""


def _collision(pair: Result) -> list[str]:
    words = f"{pair['class']} seen again as {pair['other']}"
    return [words, f"{pair['rate']:.4f}", f"{pair['low']:.4f} to {pair['high']:.4f}"]


def _by_algorithm_2(figures: Path) -> str:
    """Test images by V as printed, after the last epoch of the run whose images are kept."""
    for record in results("paper-size"):
        for looks in record["result"].values():
            last = list(looks.values())[-1]
            if "images" in last:
                figures_mnist.draw_ambiguous(last, figures / "mnist-algorithm-2.png")
                return """Test images by the paper's Algorithm 2, its own choice:

![Ambiguous images by Algorithm 2](figures/mnist-algorithm-2.png)"""
    return ""


def tables(figures: Path) -> str:
    """Figure 8."""
    records = results("tabular")
    if not records:
        return ""
    figures_tables.draw_tabular(records, figures / "tabular.svg")
    groups: dict[tuple[str, str], list[Result]] = {}
    for record in records:
        key = (record["cell"]["dataset"], record["cell"]["method"])
        groups.setdefault(key, []).append(record["result"])
    rows = [[*key, *_table_row(own)] for key, own in groups.items()]
    head = """data | method | rows | seeds | PBER | S diagonal, uniform priors | recall =
precision, natural priors | recall, decided at uniform priors | precision there
| held-out accuracy"""

    methods = (tabular.NETWORK, tabular.SPLIT, tabular.OURS)
    guesses = [[name, *_best_guess(groups["diabetes", name])] for name in methods]
    return f"""## Real tables

The four tables of the paper, and its authors' own encodings where they are public. Recall and
precision are those of the probabilistic Bayes classifier for the rarer class. Decided at the
population's own priors they are equal ([errata](errata.md), 6); decided at uniform priors, as in
the paper, they differ. In brackets 95% intervals (of the first seed). "80-10-10" is the paper's own
protocol: its network is trained on 80% of the rows until its accuracy on pairs of another 10% has
not grown for {_patience()} epochs, and S comes from the last 10%, whose number is given; "the
paper's network" alone is two folds with early stopping by loss.

{table(head, rows)}

S speaks for a classifier that draws its answer from the posterior. The best guess on diabetes,
precision and recall by labels:

{table("method | decided at uniform priors | at the priors of the data", guesses)}

![S of the tables](figures/tabular.svg)

{not_again("tabular")}

{measured(records)}"""


def _best_guess(own: Sequence[Result]) -> list[str]:
    cells = []
    for priors in ("uniform", "empirical"):
        guesses = [r["optimal"][priors]["by_labels"] for r in own]
        precision = np.mean([guess["precision"] for guess in guesses])
        recall = np.mean([guess["recall"] for guess in guesses])
        cells.append(f"{precision:.2f} at recall {recall:.2f}")
    return cells


def _table_row(own: Sequence[Result]) -> list[str]:
    """Means over seeds; intervals are those of the first."""
    decided = [r["decided"]["uniform"] for r in own]
    natural = np.mean([r["decided"]["empirical"]["recall"] for r in own])
    brier = np.mean([tabular.brier(r)[0] for r in own])
    diagonal = np.mean([np.diag(r["uniform"]["matrix"]) for r in own], axis=0)
    accuracy = np.mean([r["accuracy"] for r in own])
    row = [f"{own[0]['rows']:,}", str(len(own)), f"{brier:.4f}"]
    row += [", ".join(f"{entry:.3f}" for entry in diagonal), f"{natural:.2f}"]
    for what in ("recall", "precision"):
        mean = np.mean([r[what] for r in decided])
        text = f"{mean:.2f}"
        interval = decided[0][f"{what}_interval"]
        if interval is not None:
            text += f" ({interval[0]:.2f} to {interval[1]:.2f})"
        row.append(text)
    return [*row, f"{accuracy:.3f}"]


def _patience() -> str:
    """Epochs without a gain before the training of the 80-10-10 split ends."""
    usual = tabular._network("adult")["patience"]
    longer = tabular._network("German credit")["patience"]
    return f"{usual} (German credit: {longer})"


def counted(figures: Path) -> str:
    """Collisions that can be counted."""
    records = results("counted")
    if not records:
        return ""
    figures_tables.draw_counted(records, figures / "counted.svg")
    rows = []
    for record in records:
        cell = record["cell"]
        result = record["result"]
        gap = result["difference"]
        name = cell["dataset"]
        if cell["train"] == "all":
            name += " (trained on all rows)"
        pbers = [f"{result[how]['pber']:.4f}" for how in ("counted", "estimated")]
        row = [name, cell["method"], f"{result['coverage']:.0%}"]
        row += [f"{result['rows_scored']:,}", str(len(result["classes"])), *pbers]
        row += [f"{gap['mean_tvd']:.4f}", f"{gap['max_tvd']:.4f}"]
        rows.append([*row, f"{gap['intervals_overlap']:.0%}"])
    head = """data | method | share of rows that repeat | rows compared | K | PBER counted |
PBER estimated | mean TVD | largest TVD | intervals that overlap"""

    return f"""## Counted collisions (not in the paper)

Where exactly the same input occurs more than once, collisions can be counted: ground truth without
a model, for the rows that repeat. Estimates on the same rows beside it.

{table(head, rows)}

![Counted against estimated](figures/counted.svg)

{not_again("counted")}

{measured(records)}"""


def divergences(figures: Path) -> str:
    """Figure 3."""
    records = results("divergences")
    if not records:
        return ""
    figures_tables.draw_divergences(records, figures / "divergences.svg")
    relations = by_part(records)["relations"]
    gaps = [[name, f"{gap:.2g}"] for name, gap in relations["gaps"].items()]
    bends = []
    for scale, found in relations["inflections"].items():
        for name, places in found.items():
            shown = ", ".join(f"±{mu:.2f}" for mu in places) or "none"
            bends.append([scale, name, shown])
    covered = []
    for record in records:
        cell = record["cell"]
        able = cell.get("scale") == 1 or cell.get("model") == "quadratic"
        if able and cell["part"] == "estimate":
            covered += [point["covered"] for point in record["result"]["points"]]
    return f"""## Divergences

The collision divergence D = 1 - 2 S₁₂ beside total variation, Hellinger and Kullback–Leibler, for
two Gaussians moving apart, with estimates from 2,000 samples of each (`estimate_divergences`, ten
seeds; error bars: one standard deviation).

![Divergences](figures/divergences.svg)

Inflection points as functions of μ, for N(-μ, 1) and N(μ, scale²); the paper compares three
divergences at scale 1:

{table("scale | divergence | inflections at μ =", bends)}

Relations on the same grid, as the smallest value of the right side less the left:

{table("relation | smallest gap", gaps)}

The 95% interval of D covered the truth in {np.mean(covered):.0%} of {len(covered)} estimates with a
model that can represent it (S₁₂ cannot exceed ½, so at μ = 0 the estimate lies at the edge of what
is possible).

{measured(records)}"""
