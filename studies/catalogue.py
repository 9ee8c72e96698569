"""Every study by name. To add one, put its module here (see ``docs/studies.md``)."""

from __future__ import annotations

import importlib

from studies.store import Study

#: Modules that hold a ``STUDY``, or several ``STUDIES``, in the order in which they are listed.
MODULES = (
    "paper.study",
    "reproduction.synthetic",
    "reproduction.divergences",
    "reproduction.mnist",
    "reproduction.tabular",
    "reproduction.counted",
    "reproduction.applications_merging",
    "reproduction.applications_smoothing",
    "reproduction.applications_audit",
    "reproduction.applications_noise",
    "grid",
    "accuracy.scenarios",
    "accuracy.limit",
    "accuracy.lifelike",
    "accuracy.shared",
    "accuracy.few_rows",
    "accuracy.trained",
    "accuracy.fashion",
    "accuracy.images",
    "accuracy.real",
    "accuracy.peers",
    "accuracy.made_up",
    "accuracy.feebee",
    "accuracy.feebee_matrix",
    "accuracy.decisions",
    "plan",
    "real_tables",
    "accuracy.votes",
    "speed.members",
    "speed.engine",
    "speed.sizes",
    "speed.cores",
    "speed.scale",
    "faults.kills",
    "faults.fuzz",
    "faults.mutants",
)


def studies_of(module: str) -> tuple[Study, ...]:
    """The studies that a module holds."""
    found = importlib.import_module(f"studies.{module}")
    if hasattr(found, "STUDIES"):
        return tuple(found.STUDIES)
    return (found.STUDY,)


def every() -> dict[str, Study]:
    """All studies by name."""
    return {study.name: study for module in MODULES for study in studies_of(module)}
