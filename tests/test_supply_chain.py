"""What comes with the package, and what it never does: no network at import, fit or report; pins,
wheel, licences."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers import in_python

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PAIRS = [
    line.split("==") for line in LINES if line.strip() and not line.startswith("#")
]
PINS = {canonicalize_name(name): version.strip() for name, version in PAIRS}
WANTED = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
REQUIREMENTS = [Requirement(text) for texts in WANTED for text in texts]

#: Every way of Python's to reach another machine raises an error, and is noted in case the error is
#: swallowed.
BLOCKED = """
import sys
touched = []
FORBIDDEN = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr",
             "socket.sendto", "socket.sendmsg", "socket.bind", "urllib.Request",
             "http.client.connect",
             "ftplib.connect", "smtplib.connect", "webbrowser.open"}
def guard(event, arguments):
    if event == "socket.bind" and arguments[1][0] in ("::1", "127.0.0.1"):
        return  # urllib3 asks so whether the machine knows IPv6: nothing leaves the machine
    if event in FORBIDDEN:
        touched.append((event, str(arguments)))
        raise OSError(f"the network was touched: {event} {arguments}")
sys.addaudithook(guard)
"""

ALL_OF_IT = """
import warnings
warnings.simplefilter("ignore")
import numpy as np
import pandas as pd
import collidescope as cs
for name in cs.__all__:
    getattr(cs, name)
X, y = cs.datasets.scenario_a(3).sample(90, 0)
brief = {"limit": False, "cv": 2, "random_state": 0, "training": {"max_epochs": 2}}
clf = cs.CollisionClassifier(members=["linear", "network"], **brief).fit(X, y)
clf.predict_proba(X)
clf.shuffled_control(X, y)
clf.save(sys.argv[1] + "/model.safetensors")
cs.load(sys.argv[1] + "/model.safetensors").predict(X)
frame = pd.DataFrame(X, columns=list("abcd")).assign(word=[f"level {k % 4}" for k in range(90)])
cs.TableClassifier(members=["linear"], **brief).fit(frame, y).predict(frame)
cs.count_collisions(y, y)
cs.report(clf, X, y, sys.argv[1] + "/report.html")
print("touched", touched)
"""


def test_nothing_touches_the_network(tmp_path):
    assert "touched []" in in_python(BLOCKED + ALL_OF_IT, tmp_path).stdout
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    loads = r"""<(?:script|img|iframe)[^>]+src=["'](?!data:)[^"']+|<link[^>]+href=["'](?!data:)[^"']+"""
    asked = re.findall(loads, page)
    assert asked == [], "the report asks for something when it is opened"


def test_the_guard_sees_the_network_touched():
    code = "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9')"
    with pytest.raises(AssertionError, match="the network was touched"):
        in_python(BLOCKED + code)


def test_the_version_to_cite_is_ours():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in citation


def test_every_dependency_has_a_floor_alone():
    for requirement in REQUIREMENTS:
        assert [clause.operator for clause in requirement.specifier] == [">="], str(
            requirement
        )


def test_every_dependency_has_an_exact_pin_above_its_floor():
    for requirement in REQUIREMENTS:
        name = canonicalize_name(requirement.name)
        assert name in PINS, f"{name} has no pin in constraints.txt"
        assert requirement.specifier.contains(PINS[name]), (
            f"{name}=={PINS[name]} is not {requirement.specifier}"
        )
    assert all(re.fullmatch(r"[\w.+!-]+", version) for version in PINS.values())


def test_every_licence_on_the_page_lets_one_use_the_package():
    spec = importlib.util.spec_from_file_location(
        "licences", ROOT / "docs" / "licences.py"
    )
    licences = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(licences)
    if licences.missing():
        pytest.skip(f"not all extras are installed: {licences.missing()[0]}")
    assert licences.PAGE.read_text(encoding="utf-8") == licences.page(), (
        "run `python docs/licences.py`"
    )
    for line in licences.table().splitlines()[2:]:
        name, licence, _ = (cell.strip() for cell in line.strip("|").split("|"))
        assert re.search(r"BSD|MIT|Apache|PSF|MPL|ISC|0BSD|Unlicense", licence), (
            f"{name}: {licence}"
        )
        assert not re.search(r"\bA?GPL|SSPL|BUSL|Commercial", licence), (
            f"{name}: {licence}"
        )
