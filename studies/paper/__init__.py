"""The paper's experiments, each method beside the others: ``python -m studies.paper --quick``.

``rows.py`` has the methods (as printed, corrected, cross-fitted, closed form, one-step, ours),
``scenarios.py``, ``posteriors.py``, ``recovery.py``, ``applications.py`` and ``real.py`` the experiments,
``errata.py`` the statements that were checked, ``record.py`` the one store, ``page.py`` the pages.
"""
