"""Looking at it: displays (:mod:`~collidescope.show.displays`), and the report.

The report goes from a result to a summary (a plain dict, :mod:`~collidescope.show.summary`), in the
words of :mod:`~collidescope.show.words`, to one HTML page (:mod:`~collidescope.show.html`).
"""

from collidescope.show.displays import (
    CollisionMatrixDisplay,
    DendrogramDisplay,
    LimitDisplay,
    PosteriorDisplay,
)
from collidescope.show.html import report, write_report
from collidescope.show.summary import summarise

__all__ = [
    "CollisionMatrixDisplay",
    "DendrogramDisplay",
    "LimitDisplay",
    "PosteriorDisplay",
]
__all__ += ["report", "summarise", "write_report"]
