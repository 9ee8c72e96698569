"""Tables from files to posteriors: reading, screening, encoding, and the model that keeps the encoding."""

from collidescope.tables.encoder import TableEncoder
from collidescope.tables.model import TableClassifier, load
from collidescope.tables.reading import Table, read_table
from collidescope.tables.screening import Screening, screen

__all__ = ["Screening", "Table", "TableClassifier", "TableEncoder", "load", "read_table", "screen"]
