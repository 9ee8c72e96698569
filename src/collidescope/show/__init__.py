"""Looking at it: displays in the manner of scikit-learn, drawn with matplotlib.

A display holds what it shows. ``from_…`` makes one from a result of the package, ``plot`` draws it, on ``ax`` or on a
figure of its own, and leaves what it drew in attributes that end in ``_``. matplotlib is imported when something is
drawn and not before.
"""

from collidescope.show.dendrogram import DendrogramDisplay
from collidescope.show.divergences import DivergencesDisplay
from collidescope.show.history import HistoryDisplay
from collidescope.show.html import report, write_report
from collidescope.show.intervals import IntervalsDisplay
from collidescope.show.matrices import CollisionMatrixDisplay, GramianDisplay
from collidescope.show.posteriors import PosteriorDisplay
from collidescope.show.priors import PriorsDisplay
from collidescope.show.summary import summarise

__all__ = [
    "CollisionMatrixDisplay",
    "DendrogramDisplay",
    "DivergencesDisplay",
    "GramianDisplay",
    "HistoryDisplay",
    "IntervalsDisplay",
    "PosteriorDisplay",
    "PriorsDisplay",
    "report",
    "summarise",
    "write_report",
]
