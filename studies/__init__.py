"""What is measured: the paper's experiments, accuracy, speed, and campaigns of faults.

``python -m studies run NAME``. A study is a list of *cells* (plain settings: problem, method, seed)
and a function that runs one. Records are kept cell by cell in ``results/NAME.jsonl``, so that a run
that was stopped goes on where it was, and a change of settings reruns the cells that changed.
``python -m studies tables`` writes the documentation from them.
"""
