"""Property tests draw the same examples in every run, so that a failure is a change.

``HYPOTHESIS_PROFILE=explore`` draws new ones. Processes of pytest-xdist use one thread each, and so
do their children: two that each start a thread for every core wait for one another more than they
work.
"""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    # before numpy and torch are imported, which read it once
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(scope="session")
def data():
    """150 rows of three classes that overlap. A file that needs others has a fixture of this
    name itself."""
    from collidescope.datasets import scenario_a

    return scenario_a(3).sample(150, 0)


@pytest.fixture
def rng():
    """Random numbers from the seed 0."""
    import numpy as np

    return np.random.default_rng(0)


@pytest.fixture
def seeded():
    """Networks are drawn from the same seed, which other tests do not see."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
