"""Progress is silent unless asked, plain lines in a log, a bar on a terminal; always on stderr."""

from __future__ import annotations

import io
import re
import sys

import pytest

from collidescope import CollisionClassifier
from collidescope._progress import Progress
from collidescope.datasets import scenario_a

ENTRY = {"name": "network-8", "epoch": 3, "max_epochs": 10, "val_loss": 0.51234}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run_steps(verbose, steps=3):
    with Progress("training folds", steps, verbose) as progress:
        for _ in range(steps):
            if progress.report is not None:
                progress.report(ENTRY)
            progress.step()


def test_nothing_is_said_at_verbose_0(capsys, monkeypatch):
    run_steps(0)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    run_steps(0)
    assert terminal.getvalue() == ""


def test_a_log_gets_one_line_a_step_with_what_is_left(capsys):
    run_steps(1)
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert [line.split(",")[0] for line in lines] == [f"training folds: {i} of 3" for i in (1, 2, 3)]
    assert all(re.search(r"about \d+ s left$", line) for line in lines)
    assert lines[-1].endswith("about 0 s left")


def test_what_is_left_follows_from_the_pace_so_far(capsys, monkeypatch):
    clock = iter([100.0, 110.0, 130.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    with Progress("x", 4, 1) as progress:
        progress.step()
        progress.step()
    assert capsys.readouterr().err.splitlines() == [
        "x: 1 of 4, 10 s, about 30 s left",
        "x: 2 of 4, 30 s, about 30 s left",
    ]


def test_a_terminal_gets_a_bar_with_the_epoch_and_the_held_out_loss(capsys, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("training folds", 2, 1) as progress:
        progress.report(ENTRY)
        progress._bar.refresh()
        progress.step()
    shown = terminal.getvalue()
    assert "network-8 epoch 3, held-out loss 0.5123" in shown
    assert "left:" in shown
    assert capsys.readouterr().out == ""


def test_the_bar_ends_when_the_work_fails(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    progress = Progress("x", 2, 1)
    with pytest.raises(RuntimeError, match="boom"), progress:
        raise RuntimeError("boom")
    assert not progress._bar.live.is_started


@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
@pytest.mark.parametrize(("verbose", "lines"), [(0, 0), (1, 2)])
def test_a_fit_reports_one_line_a_fold_to_stderr(capsys, verbose, lines):
    X, y = scenario_a(3).sample(90, 0)
    CollisionClassifier(hidden_layer_sizes=(), max_epochs=2, cv=2, random_state=0, verbose=verbose).fit(X, y)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count(" of 2, ") == len(captured.err.splitlines()) == lines
