"""What the page reads: records of the experiments here, and of an earlier round."""

from __future__ import annotations

from studies import store
from studies.store import Record


def results(part: str) -> list[Record]:
    """The records of one experiment."""
    return [
        record for record in store.results("paper") if record["cell"]["study"] == part
    ]


def older(name: str) -> list[Record]:
    """Records of an earlier round with the paper's own sizes."""
    return store.results(name)
