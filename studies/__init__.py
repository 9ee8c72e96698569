"""Every experiment of the paper, one command each: ``python -m studies run NAME``.

An experiment is a list of *cells* (plain settings: problem, method, seed) and a function that runs one. Results are
kept cell by cell in ``results/NAME.jsonl``, so that a run that was stopped goes on where it was, and a change of
settings reruns the cells that changed. ``python -m studies tables`` writes the documentation from them.
"""
