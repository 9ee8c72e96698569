"""Does the range hold where the truth is known and looks real?

Densities of the classes are fitted to real rows (``studies/known.py``): images of digits, measures
of cell nuclei, and of wines. Samples of these densities, with labels at a temperature, look like
the rows that they were fitted to, and their posteriors are known exactly.
"""

from __future__ import annotations

from studies import known
from studies.accuracy.limit import against_truth, range_table
from studies.markdown import again
from studies.store import Cell, Record, Result, Study, flat, product

PROBLEMS = {
    "images of digits": known.digit_images,
    "cell nuclei": known.cancer_cells,
    "wines": known.wines,
}


def cells(quick: bool) -> list[Cell]:
    """Three samples of 1,000 rows of each, and one of 3,000."""
    if quick:
        return [{"problem": "wines", "rows": 300, "seed": 0}]
    few = product(rows=[1000], seed=range(3), problem=PROBLEMS)
    return few + product(rows=[3000], seed=[0], problem=PROBLEMS)


def run(cell: Cell) -> Result:
    """One fit of the default pool against the truth."""
    return against_truth(PROBLEMS[cell["problem"]](), cell["rows"], cell["seed"])


def text(records: list[Record]) -> str:
    runs = [flat(record) for record in records]
    return f"""## The range where truth looks real

Densities of the classes were fitted to real rows, and samples drawn from them: 8×8 images of
digits (two Gaussians of all pixels per class), measures of cell nuclei and of wines (kernel
densities). The 95% range of the default pool holds the true PBER in {range_table(runs, PROBLEMS)}

{again("lifelike")}"""


STUDY = Study("lifelike", "The range where truth looks real", cells, run, text)
