"""The paper's experiments, each method beside the others: ``python -m studies run paper --quick``.

``rows.py`` has the methods (as printed, cross-fitted, shifted, closed form, one-step, ours),
``scenarios.py``, ``figure_1.py``, ``recovery.py``, ``applications.py`` and ``real.py`` the
experiments, ``errata.py`` the statements that were checked, ``claims.py``, ``points.py`` and
``page.py`` the page.
"""
