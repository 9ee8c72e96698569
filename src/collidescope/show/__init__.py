"""Looking at it: displays in the manner of scikit-learn, drawn with matplotlib, and the report.

A display holds what it shows. ``from_…`` makes one from a result of the package, ``plot`` draws it, on ``ax`` or on a
new figure, and leaves what it drew in attributes that end in ``_``. matplotlib is imported when something is drawn and
not before. The report goes from a result to a summary (a plain dict, :mod:`~collidescope.show.summary`), in the words
of :mod:`~collidescope.show.words`, to one HTML page (:mod:`~collidescope.show.html`).
"""

from collidescope.show.dendrogram import DendrogramDisplay
from collidescope.show.html import report, write_report
from collidescope.show.limits import LimitDisplay
from collidescope.show.matrices import CollisionMatrixDisplay
from collidescope.show.posteriors import PosteriorDisplay
from collidescope.show.summary import summarise

__all__ = [
    "CollisionMatrixDisplay",
    "DendrogramDisplay",
    "LimitDisplay",
    "PosteriorDisplay",
    "report",
    "summarise",
    "write_report",
]
