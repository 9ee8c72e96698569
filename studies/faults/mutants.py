"""Would a test notice? The equations with one small mistake at a time, each against the tests that
concern it.

``python -m studies run mutants --only module=equations.projection`` tries one module.

The libraries are imported once; every mutant gets a process forked from there, in which its module
is read with the mistake (no file is ever changed) and its tests run until the first one fails,
those that failed last first. A mutant is *killed* when a test fails or the time is up, and
*survives* when all pass. Survivors are argued in ``survivors.json``: those that are in truth no
mistake, or that only the speed, the memory or the last digits would tell. Kinds of mistake:
``operators.py``. cosmic-ray starts an interpreter for every mutant (the imports of torch and
scikit-learn alone would take hours), and mutmut changes texts of messages, which no test should
notice.
"""

from __future__ import annotations

import ast
import importlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from importlib.machinery import SourceFileLoader
from pathlib import Path

from studies.faults.operators import mutants
from studies.store import Cell, Result, Study, product

ROOT = Path(__file__).parents[2]
#: What the tests import, so that no mutant pays for it again.
LIBRARIES = """
numpy scipy.stats scipy.optimize scipy.sparse scipy.integrate scipy.special pandas
sklearn.linear_model sklearn.model_selection sklearn.datasets sklearn.dummy sklearn.pipeline
sklearn.ensemble sklearn.calibration torch safetensors.torch joblib pytest _pytest.doctest
hypothesis hypothesis.strategies hypothesis.extra.numpy
"""
BAD = "test_bad_input.py::test_"
SCALE = "test_scale.py::test_"
REFUSALS = f"{BAD}bad_input_is_refused_in_our_words"
PAC = "test_pairwise.py::test_the_pac_bound_is_the_two_terms_of_the_theorem"
#: Tests of each module, beside its doctests; those marked slow are left out.
TESTS = {
    "matrix": (
        "test_matrix.py",
        REFUSALS,
        f"{BAD}nothing_of_a_collision_matrix_can_be_changed",
    ),
    "equations.gramian": ("test_equations.py",),
    "equations.merging": ("test_matrix.py", REFUSALS),
    "equations.recovery": ("test_equations.py", REFUSALS),
    "equations.projection": ("test_equations.py", REFUSALS),
    "equations.posterior": ("test_equations.py", REFUSALS),
    "equations.bounds": ("test_matrix.py", "test_equations.py", REFUSALS, PAC),
    "equations.densities": ("test_equations.py", REFUSALS),
    "equations.moments": ("test_onestep.py", "test_shrinkage.py", "test_counting.py"),
    "equations.shrinkage": ("test_shrinkage.py",),
    "onestep": (
        "test_onestep.py",
        "test_shrinkage.py",
        REFUSALS,
        f"{BAD}a_failed_update_leaves_the_accumulator_as_it_was",
        f"{SCALE}chunks_of_any_kind_give_the_s_of_the_whole",
        f"{SCALE}dask_arrays_are_accumulated_where_they_are",
        f"{SCALE}dask_frames_are_accumulated_by_partition_whatever_the_partitions_of_their_columns",
    ),
    "counting": ("test_counting.py", REFUSALS),
    "limit": ("test_limit.py",),
    "pairwise.pairs": ("test_pairwise.py", "test_training.py"),
    "pairwise.scoring": ("test_pairwise.py",),
    "learners.pool": ("test_learners.py",),
    "learners.softmax": ("test_learners.py",),
    "learners.gaussian": ("test_learners.py",),
    "learners.independent": ("test_learners.py",),
    "applications.smoothing_loss": ("test_smoothing.py", REFUSALS),
}
#: A mutant may take this many times as long as the code that is right, and so many seconds more: of
#: its own processor time, so that a busy machine kills none; and of the clock ``WAITING`` times
#: that, for one that waits for ever.
PATIENCE = 5
MORE_SECONDS = 15
WAITING = 10
MEMORY = 8 * 2**30
#: How a process ends that took too long.
TOO_LONG = {-signal.SIGXCPU, -signal.SIGKILL, -signal.SIGALRM}


def source_of(module: str) -> Path:
    return ROOT / f"src/collidescope/{module.replace('.', '/')}.py"


def read_with(tree: ast.Module, path: Path) -> None:
    """Whoever imports the module from now on gets this code."""
    for name in list(sys.modules):
        if name.partition(".")[0] in ("collidescope", "studies"):
            del sys.modules[name]
    usual = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> object:
        if Path(loader.path) != path:
            return usual(loader, name)
        return compile(ast.fix_missing_locations(tree), str(path), "exec")

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def start(module: str, tree: ast.Module, scratch: Path, limit: int) -> int:
    """The tests of a module in a process of its own, whose number is returned."""
    import pytest

    child = os.fork()
    if child:
        return child
    code = 99
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        signal.alarm(WAITING * limit)
        folder = scratch / str(os.getpid())
        with open(f"{folder}.log", "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        read_with(tree, source_of(module))
        options = ["-x", "-q", "-s", "--ff", "-m", "not slow", "--assert=plain"]
        options += ["-o", f"cache_dir={scratch}/cache", f"--basetemp={folder}"]
        tests = [f"tests/{test}" for test in TESTS[module]]
        code = pytest.main([*options, *tests, str(source_of(module))])
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(code)


def outcome(status: int) -> str:
    """What a status of ``os.wait`` says of a mutant."""
    code = os.waitstatus_to_exitcode(status)
    if code in TOO_LONG:
        return "timed out"
    if code:
        return "killed"
    return "survived"


def seconds_without_mistake(module: str, tree: ast.Module, scratch: Path) -> float:
    """Processor seconds of the tests of a module as it is."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = start(module, tree, scratch, 600)
    if outcome(os.waitpid(child, 0)[1]) != "survived":
        said = Path(scratch, f"{child}.log").read_text()[-3000:]
        raise RuntimeError(f"the tests of {module} fail without any mutant:\n{said}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def campaign(
    module: str, jobs: int, sample: int | None = None, seed: int = 0
) -> Result:
    """Try the mutants of a module, or a sample of them."""
    source = source_of(module).read_text()
    every = range(len(mutants(source)[1]))
    chosen = list(every)
    if sample is not None and sample < len(every):
        chosen = sorted(random.Random(seed).sample(every, sample))
    found = {}
    running = {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        sys.pycache_prefix = folder  # the tests are compiled once, not per mutant
        usual = seconds_without_mistake(module, mutants(source)[0], scratch)
        limit = int(PATIENCE * usual + MORE_SECONDS)
        print(
            f"{module}: {len(chosen)} of {len(every)} mutants, tests take {usual:.1f} s"
        )
        waiting = list(chosen)
        while waiting or running:
            if waiting and len(running) < jobs:
                number = waiting.pop(0)
                tree, all_mutants = mutants(source)
                all_mutants[number].apply()
                running[start(module, tree, scratch, limit)] = number
                continue
            child, status = os.wait()
            found[running.pop(child)] = outcome(status)
    counts = Counter(found.values())
    survived = []
    for number in chosen:
        if found[number] == "survived":
            mutant = mutants(source)[1][number]
            name = f"{mutant.where}: {mutant.what}"
            survived.append({"line": mutant.line, "mutant": name})
    return {
        "mutants": len(every),
        "tried": len(chosen),
        "killed": counts["killed"],
        "timed out": counts["timed out"],
        "survived": survived,
    }


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"module": "equations.gramian", "sample": 5}]
    return product(module=TESTS)


def run(cell: Cell) -> Result:
    """The mutants of a module, as many at a time as there are processors."""
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["COLLIDESCOPE_DATA"] = ""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    sys.dont_write_bytecode = False
    for library in LIBRARIES.split():
        importlib.import_module(library)
    sys.modules["torch"].set_num_threads(1)
    return campaign(jobs=len(os.sched_getaffinity(0)), **cell)


STUDY = Study(
    "mutants", "Would a test notice a mistake in an equation?", cells, run, alone=True
)
