"""Real tables: what the loaders give is what their sources document."""

import os
from collections import Counter

import numpy as np
import pytest

from studies import real_data

needs_data = pytest.mark.skipif(
    not os.environ.get("COLLIDESCOPE_DATA"), reason="COLLIDESCOPE_DATA is not set"
)

FOREST = {
    "spruce/fir": 211_840,
    "lodgepole pine": 283_301,
    "ponderosa pine": 35_754,
    "cottonwood/willow": 2_747,
}
FOREST |= {"aspen": 9_493, "douglas-fir": 17_367, "krummholz": 20_510}
#: loader → shape, rows of each class, categorical columns
TABLES = {
    "load_adult": ((48_842, 14), {"<=50K": 37_155, ">50K": 11_687}, 8),
    "load_law_school": ((20_798, 11), {"fail": 2_293, "pass": 18_505}, 1),
    "load_german_credit": ((1_000, 20), {"good": 700, "bad": 300}, 13),
    "load_brfss": (
        (253_680, 21),
        {"none": 213_703, "prediabetes": 4_631, "diabetes": 35_346},
        0,
    ),
    "load_covertype": ((581_012, 54), FOREST, 0),
}
FILES = {
    "load_adult": r"adult\.data",
    "load_german_credit": r"german\.data",
    "load_covertype": r"covtype\.npz",
}
FILES |= {
    "load_law_school": r"law_school_clean\.csv",
    "load_letter": r"letter-recognition\.data",
}


@needs_data
@pytest.mark.parametrize("name", TABLES)
def test_tables_are_as_documented(name):
    shape, classes, categorical = TABLES[name]
    X, y = getattr(real_data, name)()
    assert X.shape == shape
    assert Counter(np.asarray(y).tolist()) == classes
    assert (X.dtypes == "category").sum() == categorical
    assert X.columns.is_unique
    assert not X.isna().any().any()


@needs_data
def test_tables_hold_what_their_sources_say():
    X, _ = real_data.load_adult()  # both parts, with missing answers as a category
    unknown = {"workclass": 2_799, "occupation": 2_809, "native-country": 857}
    assert {name: int((X[name] == "?").sum()) for name in unknown} == unknown
    assert X["age"].iloc[[0, 32_561]].tolist() == [
        39,
        25,
    ]  # the first rows of adult.data and of adult.test
    X, y = real_data.load_letter()
    assert X.shape == (20_000, 16)
    assert "".join(np.unique(y)) == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert (y[0], X.iloc[0].tolist()) == (
        "T",
        [2, 8, 3, 5, 1, 8, 13, 0, 6, 6, 10, 8, 0, 8, 0, 8],
    )
    forest, _ = real_data.load_covertype()
    for start in ("wilderness", "soil"):
        assert (forest.filter(regex=f"^{start}").sum(axis=1) == 1).all()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_or_folder_is_named(name, tmp_path, monkeypatch):
    monkeypatch.setenv("COLLIDESCOPE_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=FILES[name]):
        getattr(real_data, name)()
    monkeypatch.delenv("COLLIDESCOPE_DATA")
    with pytest.raises(FileNotFoundError, match="set COLLIDESCOPE_DATA"):
        getattr(real_data, name)()
