"""Pictures in the manner of scikit-learn: ``from_…`` makes one, ``.plot(ax=None)`` draws it."""

from collidescope.show import CollisionMatrixDisplay as CollisionMatrixDisplay
from collidescope.show import DendrogramDisplay as DendrogramDisplay
from collidescope.show import LimitDisplay as LimitDisplay
from collidescope.show import PosteriorDisplay as PosteriorDisplay
from collidescope.show import report as report
from collidescope.show import summarise as summarise
