"""Would a test notice? The equations with one small mistake at a time, each against the tests that concern it.

``python -m stress.mutants [MODULE …] [--jobs N] [--sample N] [--out FILE]``

The libraries are imported once; every mutant gets a process forked from there, in which its module is compiled with
the mistake (no file is ever changed) and its tests run until the first one fails. A mutant is *killed* when a test
fails or the time is up, and *survives* when all pass. Survivors are argued in ``survivors.json``: those that are in
truth no mistake, or that only the speed, the memory or the last digits would tell. Kinds of mistake: ``operators.py``.
With ``--jobs 16``: a quarter of an hour. cosmic-ray starts an interpreter for every mutant (the imports of torch and
scikit-learn alone would take hours), and mutmut changes texts of messages, which no test should notice.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from stress.operators import Mutant, mutants
from stress.record import save

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "collidescope"
#: What the tests import, so that no mutant pays for it again.
LIBRARIES = (
    *("numpy", "scipy.stats", "scipy.optimize", "scipy.sparse", "scipy.integrate", "scipy.special", "pandas"),
    *("sklearn.linear_model", "sklearn.model_selection", "sklearn.datasets", "sklearn.dummy", "sklearn.pipeline"),
    *("sklearn.ensemble", "sklearn.calibration", "torch", "safetensors.torch", "joblib", "pytest", "_pytest.doctest"),
    *("hypothesis", "hypothesis.strategies", "hypothesis.extra.numpy"),
)
BAD = "test_bad_input.py::test_"
EQUATION, ESTIMATE, VALUE = f"{BAD}an_equation_refuses", f"{BAD}an_estimate_refuses", f"{BAD}a_collision_matrix_refuses"
#: Tests of each module, beside its doctests; those marked slow are left out.
TESTS: dict[str, tuple[str, ...]] = {
    "matrix": (
        "test_matrix.py",
        VALUE,
        f"{BAD}damaged_json_is_refused",
        f"{BAD}nothing_of_a_collision_matrix_can_be_changed",
    ),
    "equations.gramian": ("test_equations.py",),
    "equations.recovery": ("test_equations.py", EQUATION),
    "equations.projection": ("test_equations.py", EQUATION),
    "equations.posterior": ("test_equations.py", EQUATION),
    "equations.bounds": ("test_matrix.py", "test_equations.py", EQUATION),
    "equations.densities": ("test_equations.py", EQUATION),
    "equations.moments": ("test_estimate.py", "test_counting.py"),
    "equations.shrinkage": ("test_estimate.py",),
    "estimate": ("test_estimate.py", ESTIMATE, f"{BAD}a_failed_update_leaves_the_accumulator_as_it_was"),
    "counting": ("test_counting.py", ESTIMATE),
    "limit": ("test_limit.py",),
    "pairwise.pairs": ("test_pairwise.py",),
    "pairwise.risk": ("test_pairwise.py",),
    "pairwise.scoring": ("test_pairwise.py",),
    "learners.pool": ("test_learners.py",),
    "learners.softmax": ("test_learners.py",),
    "applications.smoothing_loss": ("test_smoothing.py",),
}
#: A mutant may take this many times as long as the code that is right, and so many seconds more: of its own processor
#: time, so that a busy machine kills none; and of the clock ten times that, for one that waits for ever.
PATIENCE, WAITING = (5, 15), 10
MEMORY = 8 * 2**30
#: Exit code of tests that passed on another module than the mutant.
NOT_LOADED = 98


class _Loader(SourceFileLoader):
    """Runs a module from a tree that is already there."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self.code = code

    def get_code(self, fullname: str) -> CodeType:
        return self.code


class _Plugin:
    """Gives the mutant when its module is imported (before pytest's own import hook), and runs quick tests first."""

    def __init__(self, name: str, path: Path, code: CodeType, seconds: dict[str, float]) -> None:
        self.name, self.path, self.code = name, path, code
        self.known, self.seconds = seconds, {}  # type: dict[str, float], dict[str, float]

    def pytest_sessionstart(self) -> None:
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: round(self.known.get(item.nodeid, 0.0), 1))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=_Loader(name, str(self.path), self.code))


def source_of(module: str) -> Path:
    return SOURCE / f"{module.replace('.', '/')}.py"


def _run(module: str, tree: ast.Module, mutant: Mutant | None, folder: Path, seconds: dict[str, float]) -> int:
    """In the new process: the exit code of the tests."""
    import pytest

    for name in [name for name in sys.modules if name.partition(".")[0] == "collidescope"]:
        del sys.modules[name]
    if mutant is not None:
        mutant.apply()
    code = compile(ast.fix_missing_locations(tree), str(source_of(module)), "exec")
    plugin = _Plugin(f"collidescope.{module}", source_of(module), code, seconds)
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", f"--basetemp={folder}"]
    tests = [f"tests/{test}" for test in TESTS[module]]
    ended = int(pytest.main([*options, *tests, str(source_of(module).relative_to(ROOT))], plugins=[plugin]))
    if mutant is None:
        Path(f"{folder}.json").write_text(json.dumps(plugin.seconds))
    if ended == 0 and not isinstance(sys.modules[plugin.name].__loader__, _Loader):
        return NOT_LOADED
    return ended


def start(
    module: str, tree: ast.Module, mutant: Mutant | None, folder: Path, seconds: dict[str, float], limit: int
) -> int:
    """Fork; the child's process id. ``limit``: seconds of processor time."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        with open(f"{folder}.log", "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        code = _run(module, tree, mutant, folder, seconds)
    finally:
        os._exit(code)


def finish(child: int, deadline: float, block: bool = False) -> str | None:
    """How a child ended ("survived", "killed", "timed out"), or None when it still runs."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code == NOT_LOADED:
                raise RuntimeError("the tests did not import the mutant")
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


def campaign(module: str, jobs: int, sample: int | None, seed: int) -> dict[str, Any] | None:
    """Try the mutants of a module; None where its tests fail as it is."""
    tree, found = mutants(source_of(module).read_text())
    chosen = found
    if sample is not None and sample < len(found):
        chosen = [found[i] for i in sorted(random.Random(seed).sample(range(len(found)), sample))]
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.monotonic()
        right = Path(scratch, "right")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if finish(start(module, tree, None, right, {}, 600), begun + 6000, block=True) != "survived":
            print(f"the tests of {module} fail without any mutant:\n{Path(f'{right}.log').read_text()[-3000:]}")
            return None
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        usual = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        limit = int(PATIENCE[0] * usual + PATIENCE[1])
        seconds = json.loads(Path(f"{right}.json").read_text())
        print(f"{module}: {len(chosen)} of {len(found)} mutants, tests take {usual:.1f} s", flush=True)
        ended: dict[int, str] = {}
        running: dict[int, tuple[int, float, Path]] = {}
        waiting = list(range(len(chosen)))
        while waiting or running:
            while waiting and len(running) < jobs:
                number = waiting.pop(0)
                folder = Path(scratch, str(number))
                deadline = time.monotonic() + WAITING * limit
                running[start(module, tree, chosen[number], folder, seconds, limit)] = number, deadline, folder
            for child, (number, deadline, folder) in list(running.items()):
                outcome = finish(child, deadline)
                if outcome is not None:
                    ended[number] = outcome
                    del running[child]
                    shutil.rmtree(folder, ignore_errors=True)
                    if outcome == "survived":
                        print(f"  {chosen[number].line}: {_name(chosen[number])}", flush=True)
            time.sleep(0.01)
    outcomes = list(ended.values())
    survivors = [chosen[i] for i in sorted(ended) if ended[i] == "survived"]
    print(f"{module}: {outcomes.count('survived')} survived, {time.monotonic() - begun:.0f} s", flush=True)
    return {
        "mutants": len(found),
        "tried": len(chosen),
        "killed": outcomes.count("killed"),
        "timed out": outcomes.count("timed out"),
        "survived": [{"line": mutant.line, "mutant": _name(mutant)} for mutant in survivors],
    }


def _name(mutant: Mutant) -> str:
    return f"{mutant.where}: {mutant.what}"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Would a test notice?")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"some of {', '.join(TESTS)} (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--sample", type=int, help="at most so many mutants of a module, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--out", type=Path, help="file of results (default: stress/results/mutants.json)")
    options = parser.parse_args(argv)
    out = options.out or ROOT / "stress" / "results" / "mutants.json"
    unknown = set(options.modules) - set(TESTS)
    if unknown:
        parser.error(f"no such module: {', '.join(sorted(unknown))}")
    os.chdir(ROOT)
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLLIDESCOPE_DATA": ""}
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    for library in LIBRARIES:
        importlib.import_module(library)
    sys.modules["torch"].set_num_threads(1)
    recorded = json.loads(out.read_text())["results"] if out.exists() else {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as cache:
        sys.dont_write_bytecode, sys.pycache_prefix = False, cache  # the tests are compiled once, not per mutant
        for module in options.modules or TESTS:
            result = campaign(module, options.jobs, options.sample, options.seed)
            if result is None:
                failed.append(module)
                continue
            recorded[module] = result
            ordered = {name: recorded[name] for name in TESTS if name in recorded}
            save("mutants", {"sample": options.sample, "seed": options.seed}, ordered, out)
    if failed:
        raise SystemExit(f"left out, their tests fail: {', '.join(failed)}")


if __name__ == "__main__":
    main()
