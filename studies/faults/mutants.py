"""Would a test notice? The equations with one small mistake at a time, each against the tests that
concern it.

``python -m studies run mutants --only module=equations.projection`` tries one module.

The libraries and the tests are imported and collected once; every mutant gets a process forked from
there, in which the functions of its module get the code with the mistake (no file is ever changed)
and its tests run until the first one fails, those that killed others first. A mutant is *killed*
when a test fails or the time is up, and *survives* when all pass. Survivors are argued in
``survivors.json``: those that are in truth no mistake, or that only the speed, the memory or the
last digits would tell. Kinds of mistake: ``operators.py``. cosmic-ray starts an interpreter for
every mutant (the imports of torch and scikit-learn alone would take hours), and mutmut changes
texts of messages, which no test should notice.
"""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from studies.faults.operators import Mutant, mutants
from studies.store import Cell, Result, Study

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "collidescope"
#: What the tests import, so that no mutant pays for it again.
LIBRARIES = (
    *(
        "numpy",
        "scipy.stats",
        "scipy.optimize",
        "scipy.sparse",
        "scipy.integrate",
        "scipy.special",
        "pandas",
    ),
    *(
        "sklearn.linear_model",
        "sklearn.model_selection",
        "sklearn.datasets",
        "sklearn.dummy",
        "sklearn.pipeline",
    ),
    *(
        "sklearn.ensemble",
        "sklearn.calibration",
        "torch",
        "safetensors.torch",
        "joblib",
        "pytest",
        "_pytest.doctest",
    ),
    *("hypothesis", "hypothesis.strategies", "hypothesis.extra.numpy"),
)
BAD, SCALE = "test_bad_input.py::test_", "test_scale.py::test_"
REFUSALS = f"{BAD}bad_input_is_refused_in_our_words"
PAC = "test_pairwise.py::test_the_pac_bound_is_the_two_terms_of_the_theorem"
#: Tests of each module, beside its doctests; those marked slow are left out.
TESTS: dict[str, tuple[str, ...]] = {
    "matrix": (
        "test_matrix.py",
        REFUSALS,
        f"{BAD}nothing_of_a_collision_matrix_can_be_changed",
    ),
    "equations.gramian": ("test_equations.py",),
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
        f"{SCALE}chunks_of_any_kind_give_the_s_of_the_whole_and_a_bad_one_is_named",
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
#: its own processor time, so that a busy machine kills none; and of the clock ten times that, for
#: one that waits for ever.
PATIENCE, WAITING = (5, 15), 10
MEMORY = 8 * 2**30


class _Plugin:
    """Does the campaign where pytest would run the tests that it has collected, and remembers
    what each one takes."""

    def __init__(self, module: str, jobs: int, sample: int | None, seed: int) -> None:
        self.options = module, jobs, sample, seed
        self.result: Result | None = None
        self.seconds: dict[str, float] = {}
        self.kills: Counter[str] = Counter()

    def pytest_runtestloop(self, session: Any) -> bool:
        if not session.testsfailed:  # all could be collected
            self.result = _campaign(session, self, *self.options)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = (
            self.seconds.get(report.nodeid, 0.0) + report.duration
        )


def transplant(module: ModuleType, code: CodeType) -> None:
    """Give the functions, methods and constants of a module the code of a mutant, also where
    they were imported."""
    fresh = {
        name: value for name, value in vars(module).items() if name.startswith("__")
    }
    exec(code, fresh)
    for name, new in fresh.items():
        old = vars(module).get(name)
        if name.startswith("__") or new is old:
            continue
        if inspect.isclass(new) and new.__module__ == module.__name__:
            for member, value in vars(new).items():
                for mine, theirs in zip(
                    _functions(vars(old).get(member)), _functions(value), strict=True
                ):
                    _take_code(mine, theirs)
        elif isinstance(new, FunctionType):
            for mine, theirs in zip(_functions(old), _functions(new), strict=True):
                _take_code(mine, theirs)
        else:
            for other in [
                each for each in sys.modules.values() if vars(each).get(name) is old
            ]:
                setattr(other, name, new)


def _functions(value: Any) -> Iterator[FunctionType]:
    """The plain functions behind a function, method, property or wrapper."""
    for attribute in ("fget", "func", "__func__", "__wrapped__"):
        if inner := getattr(value, attribute, None):
            yield from _functions(inner)
    if isinstance(value, FunctionType):
        yield value


def _take_code(old: FunctionType, new: FunctionType) -> None:
    if len(old.__code__.co_freevars) == len(
        new.__code__.co_freevars
    ):  # not of functions that dataclasses write
        old.__code__, old.__defaults__, old.__kwdefaults__ = (
            new.__code__,
            new.__defaults__,
            new.__kwdefaults__,
        )


def source_of(module: str) -> Path:
    return SOURCE / f"{module.replace('.', '/')}.py"


def _run(
    session: Any, plugin: _Plugin, tree: ast.Module, mutant: Mutant | None, folder: Path
) -> int:
    """In the new process: 1 as soon as a test fails."""
    if mutant is not None:
        mutant.apply()
        path = source_of(plugin.options[0])
        code = compile(ast.fix_missing_locations(tree), str(path), "exec")
        transplant(sys.modules[f"collidescope.{plugin.options[0]}"], code)
    session.config._tmp_path_factory._given_basetemp = folder
    # What killed others first, then the quick ones.
    order = {
        item: (-plugin.kills[item.nodeid], round(plugin.seconds.get(item.nodeid, 0), 1))
        for item in session.items
    }
    items = sorted(session.items, key=order.__getitem__)
    for item, following in zip(items, [*items[1:], None], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            Path(f"{folder}.killer").write_text(item.nodeid)
            return 1
    if mutant is None:
        Path(f"{folder}.json").write_text(json.dumps(plugin.seconds))
    return 0


def start(
    session: Any,
    plugin: _Plugin,
    tree: ast.Module,
    mutant: Mutant | None,
    folder: Path,
    limit: int,
) -> int:
    """Fork; the child's process id. ``limit``: seconds of processor time."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.setpgid(0, 0)
        gc.disable()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        with open(f"{folder}.log", "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        code = _run(session, plugin, tree, mutant, folder)
    finally:
        os._exit(code)


def finish(child: int, deadline: float, block: bool = False) -> str | None:
    """How a child ended ("survived", "killed", "timed out"), or None when it still runs."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code in (-signal.SIGXCPU, -signal.SIGKILL):
                return "timed out"
            return "killed" if code else "survived"
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "timed out"
        if not block:
            return None
        time.sleep(0.02)


def campaign(module: str, jobs: int, sample: int | None, seed: int) -> Result | None:
    """Try the mutants of a module; None where its tests fail as it is."""
    import pytest

    plugin = _Plugin(module, jobs, sample, seed)
    tests = [f"tests/{test}" for test in TESTS[module]]
    options = [
        "-x",
        "-q",
        "-s",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminalreporter",
    ]
    pytest.main(
        [*options, *tests, str(source_of(module).relative_to(ROOT))], plugins=[plugin]
    )
    return plugin.result


def _campaign(
    session: Any, plugin: _Plugin, module: str, jobs: int, sample: int | None, seed: int
) -> Result | None:
    tree, found = mutants(source_of(module).read_text())
    chosen = found
    if sample is not None and sample < len(found):
        chosen = [
            found[i]
            for i in sorted(random.Random(seed).sample(range(len(found)), sample))
        ]
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.monotonic()
        gc.collect()
        gc.freeze()  # so that no child copies what its parent has
        right = Path(scratch, "right")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if (
            finish(
                start(session, plugin, tree, None, right, 600), begun + 6000, block=True
            )
            != "survived"
        ):
            said = Path(f"{right}.log").read_text()[-3000:]
            print(f"the tests of {module} fail without any mutant:\n{said}")
            return None
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        usual = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        limit = int(PATIENCE[0] * usual + PATIENCE[1])
        plugin.seconds = json.loads(Path(f"{right}.json").read_text())
        print(
            f"{module}: {len(chosen)} of {len(found)} mutants, tests take {usual:.1f} s",
            flush=True,
        )
        ended: dict[int, str] = {}
        running: dict[int, tuple[int, float, Path]] = {}
        waiting = list(range(len(chosen)))
        while waiting or running:
            while waiting and len(running) < jobs:
                number = waiting.pop(0)
                folder = Path(scratch, str(number))
                deadline = time.monotonic() + WAITING * limit
                running[start(session, plugin, tree, chosen[number], folder, limit)] = (
                    number,
                    deadline,
                    folder,
                )
            for child, (number, deadline, folder) in list(running.items()):
                outcome = finish(child, deadline)
                if outcome is not None:
                    ended[number] = outcome
                    del running[child]
                    if (killer := Path(f"{folder}.killer")).exists():
                        plugin.kills[killer.read_text()] += 1
                    shutil.rmtree(folder, ignore_errors=True)
                    if outcome == "survived":
                        print(
                            f"  {chosen[number].line}: {_name(chosen[number])}",
                            flush=True,
                        )
            time.sleep(0.01)
    outcomes = list(ended.values())
    survivors = [chosen[i] for i in sorted(ended) if ended[i] == "survived"]
    print(
        f"{module}: {outcomes.count('survived')} survived, {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    return {
        "mutants": len(found),
        "tried": len(chosen),
        "killed": outcomes.count("killed"),
        "timed out": outcomes.count("timed out"),
        "survived": [
            {"line": mutant.line, "mutant": _name(mutant)} for mutant in survivors
        ],
    }


def _name(mutant: Mutant) -> str:
    return f"{mutant.where}: {mutant.what}"


def prepare() -> None:
    """Import once what every mutant would import."""
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["COLLIDESCOPE_DATA"] = ""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    for library in LIBRARIES:
        importlib.import_module(library)
    sys.modules["torch"].set_num_threads(1)


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"module": "equations.gramian", "sample": 5}]
    return [{"module": module} for module in TESTS]


def run(cell: Cell) -> Result:
    """The mutants of a module, as many at a time as there are processors."""
    prepare()
    jobs = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as cache:
        # The tests are compiled once, not per mutant.
        sys.dont_write_bytecode = False
        sys.pycache_prefix = cache
        result = campaign(cell["module"], jobs, cell.get("sample"), cell.get("seed", 0))
    if result is None:
        raise RuntimeError(f"the tests of {cell['module']} fail without any mutant")
    return result


STUDY = Study(
    "mutants", "Would a test notice a mistake in an equation?", cells, run, alone=True
)
