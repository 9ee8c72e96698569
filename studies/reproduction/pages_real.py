"""Sections of docs/reproduction.md on real data and on divergences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from studies.markdown import table
from studies.reproduction import figures_mnist, figures_tables, tabular
from studies.reproduction import mnist as mnist_cells
from studies.reproduction.tables import measured, not_again
from studies.store import Record, Result, by_part, results


def sections(figures: Path) -> list[str]:
    """All of them, those without results left out."""
    made = [mnist(figures), tables(figures), counted(figures), divergences(figures)]
    return [section for section in made if section]


def _pairs(S: np.ndarray, count: int) -> list[tuple[int, int]]:
    """The most colliding pairs by S, the larger of both entries."""
    rates = np.triu(np.maximum(S, S.T), 1)
    places = np.argsort(-rates, axis=None)[:count]
    return [divmod(int(place), len(S)) for place in places]


def _range(values: Sequence[float], digits: int = 4) -> str:
    """Mean, and the ends over runs."""
    text = f"{np.mean(values):.{digits}f}"
    if len(values) < 2:
        return text
    return f"{text} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def mnist(figures: Path) -> str:
    """Figures 6, 7 and 10."""
    records = sorted(results("mnist"), key=lambda record: record["cell"]["seed"])
    encoders = [r for r in records if r["cell"]["model"] == "factorised"]
    pairs = [r for r in records if r["cell"]["model"] == "pairwise"]
    if not (encoders and pairs):
        return ""
    figures_mnist.draw_matrix(encoders[0], figures / "mnist-s.svg")
    figures_mnist.draw_pairs(encoders[0], figures / "mnist-pairs.svg")
    figures_mnist.draw_ambiguous(encoders[0], figures / "mnist-ambiguous.png")
    pairs.sort(key=lambda record: "images" not in record["result"])
    readings = {
        "literal paper": [r["result"]["corrections"]["none"] for r in pairs],
        "with the shift": [r["result"]["corrections"]["prior"] for r in pairs],
        "collidescope": [r["result"] | r["result"]["held_out"] for r in encoders],
    }
    first = encoders[0]["result"]
    spent = pairs[0]["result"]["seconds"]
    collisions = [_collision(pair) for pair in first["top"]]
    references = " and ".join(sorted({str(r["result"]["references"]) for r in pairs}))
    return f"""## MNIST

All 60,000 training images, five folds, every image scored by a network that did not train on it.
Runs: encoder {len(encoders)}, pair-wise network {len(pairs)}; in brackets the ends over runs.
"collidescope" is a small convolutional encoder ({first["weights"]:,} weights) with the one-step
estimator; the pair-wise network is ResNet-18 with two input channels as in the paper, with
{references} references a fold, read once as the paper does (descent on the Gramian, posteriors by
S⁻¹q) and once with the logit shift (root, least squares over the simplex). Only the encoder was
trained with augmented images, and {folds_at_the_limit()}.

{_matrix_table(readings)}

Rows of Ĝ sum to {_row_sums(readings["literal paper"])} without the shift and
{_row_sums(readings["with the shift"])} with it. Held-out posteriors:

{_posterior_table(readings)}

![S of MNIST](figures/mnist-s.svg)

The ten largest collisions by the encoder, 95% intervals (first run):

{table(" | rate | interval", collisions)}

![The largest pairs](figures/mnist-pairs.svg)

PBER {_range([r["result"]["pber"] for r in encoders])}, and for the first run, with a 95% interval,
{first["pber"]:.4f} ({first["pber_interval"][0]:.4f} to {first["pber_interval"][1]:.4f}); on the
10,000 test images, with the five networks averaged, accuracy
{_range([r["result"]["test"]["accuracy"] for r in encoders])} and Brier score
{_range([r["result"]["test"]["brier"] for r in encoders])}.

Images that a method finds clear (a posterior above {mnist_cells.ONE_HOT:g}) or split (two above
{mnist_cells.SPLIT:g}); only eyes can tell whether these are the unambiguous and the ambiguous ones:

{_doubt_table(readings)}

Ambiguous images with their held-out posteriors by the encoder (the paper's figures of images and
posteriors):

![Ambiguous images](figures/mnist-ambiguous.png)

{_by_algorithm_2(pairs[0], figures)}

Time (first runs): encoder {first["seconds"]["training"]:.0f} s of training; ResNet-18
{spent["training"]:.0f} s of training and {spent["scoring"]:.0f} s for
{pairs[0]["result"]["pairs_scored"]:,} pairs, beside other runs.

{measured(records)}"""


def folds_at_the_limit() -> str:
    """How many folds of the ResNets were still improving."""
    found = [r for r in results("mnist") if r["cell"]["model"] == "pairwise"]
    (limit,) = {record["cell"]["max_epochs"] for record in found}
    epochs = [each for record in found for each in record["result"]["epochs"]]
    return (
        f"{epochs.count(limit)} of {len(epochs)} folds of the ResNets stopped at the limit of "
        f"{limit} epochs"
    )


def _row_sums(found: Sequence[Result]) -> str:
    return _range([float(np.mean(r["row_sums"])) for r in found], 2)


def _matrix_table(readings: Mapping[str, list[Result]]) -> str:
    """The largest pairs, how many are above 0.01, and S[4, 9]."""
    rows = []
    for name, found in readings.items():
        key = "S"
        if name == "literal paper":
            key = "S_gradient"
        each = [np.array(r[key]) for r in found]
        S = np.mean(each, axis=0)
        largest = ", ".join(
            f"{i}–{j} ({max(S[i, j], S[j, i]):.4f})" for i, j in _pairs(S, 4)
        )
        above = ", ".join(str((np.triu(one, 1) > 0.01).sum()) for one in each)
        rows.append([name, largest, above, _range([float(one[4, 9]) for one in each])])
    return table("method | largest pairs | pairs above 0.01 | S[4, 9]", rows)


def _doubt_table(readings: Mapping[str, list[Result]]) -> str:
    rows = []
    for name, found in readings.items():
        told = [r for r in found if "split" in r]
        if not told:
            continue
        row = [name]
        asked = [("one_hot", "first_right"), ("split", "either_right")]
        for group, right in asked:
            images = np.mean([r[group]["images"] for r in told])
            share = np.mean([r[group][right] for r in told])
            row += [f"{images:,.0f}", f"{share:.2%}"]
        rows.append(row)
    head = "method | clear | labelled so | split | label is one of the two"
    return table(head, rows)


def _collision(pair: Result) -> list[str]:
    words = f"{pair['class']} seen again as {pair['other']}"
    return [words, f"{pair['rate']:.4f}", f"{pair['low']:.4f} to {pair['high']:.4f}"]


def _posterior_table(readings: Mapping[str, list[Result]]) -> str:
    names = ("accuracy", "log_loss", "brier", "calibration_error")
    rows = []
    for method, found in readings.items():
        told = [r for r in found if "calibration_error" in r]
        if told:
            rows.append([method, *(_range([r[name] for r in told]) for name in names)])
    head = "method | accuracy | log loss | Brier score | calibration error"
    return table(head, rows)


def _by_algorithm_2(record: Record, figures: Path) -> str:
    if "images" not in record["result"]:
        return ""
    figures_mnist.draw_ambiguous(record, figures / "mnist-algorithm-2.png")
    return """The same by the paper's Algorithm 2, its own choice of images: the clearest 0, the
most even of each pair, the most uncertain.

![Ambiguous images by Algorithm 2](figures/mnist-algorithm-2.png)"""


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
