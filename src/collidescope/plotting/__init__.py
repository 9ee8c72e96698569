"""Looking at it: displays in the manner of scikit-learn, drawn with matplotlib.

A display holds what it shows. ``from_…`` makes one from a result of the package, ``plot`` draws it, on ``ax`` or on a
figure of its own, and leaves what it drew in attributes that end in ``_``. matplotlib is imported when something is
drawn and not before.
"""

from collidescope.plotting.dendrogram import DendrogramDisplay
from collidescope.plotting.divergences import DivergencesDisplay
from collidescope.plotting.history import HistoryDisplay
from collidescope.plotting.intervals import IntervalsDisplay
from collidescope.plotting.matrices import CollisionMatrixDisplay, GramianDisplay
from collidescope.plotting.posteriors import PosteriorDisplay
from collidescope.plotting.priors import PriorsDisplay

__all__ = [
    "CollisionMatrixDisplay",
    "DendrogramDisplay",
    "DivergencesDisplay",
    "GramianDisplay",
    "HistoryDisplay",
    "IntervalsDisplay",
    "PosteriorDisplay",
    "PriorsDisplay",
]
