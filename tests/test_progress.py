"""Progress is silent unless asked, plain lines in a log, a bar on a terminal; always on stderr."""

import io
import logging
import re
import sys

import pytest

from collidescope._progress import Progress

ENTRY = {"name": "network-8", "epoch": 3, "max_epochs": 10, "val_loss": 0.51234}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_nothing_is_said_at_verbose_0_but_every_step_is_logged(
    capsys, monkeypatch, caplog
):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with (
        caplog.at_level(logging.INFO, "collidescope"),
        Progress("training folds", 3, 0) as progress,
    ):
        for _ in range(3):
            progress.step()
    assert capsys.readouterr().out == terminal.getvalue() == ""
    said = [record.message.split(",")[0] for record in caplog.records]
    assert said == [f"training folds: {share}%" for share in (33, 67, 100)]


def test_what_is_left_follows_from_the_pace_so_far(capsys, monkeypatch):
    clock = iter([100.0, 110.0, 130.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    with Progress("x", 4, 1) as progress:
        progress.step()
        progress.step()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "x: 25%, 10 s, about 30 s left",
        "x: 50%, 30 s, about 30 s left",
    ]


@pytest.mark.parametrize("columns", [60, 120])
def test_the_bar_is_readable_at_any_width(monkeypatch, columns):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    with Progress("training folds", 5, 1) as progress:
        progress.report(ENTRY)
        # no ETA before a step is done
        assert progress._bar.tasks[0].fields["pace"] == "5%, 0:00:00 so far"
        progress.step()
        progress.report(ENTRY)
        progress._bar.refresh()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    last = [line for line in re.split(r"[\r\n]", plain) if line][-1]
    assert len(last) <= columns
    assert last.startswith("training folds")
    assert len(re.findall("[━╸╺]", last)) >= 10
    assert re.search(r"25%, \d+:\d\d:\d\d left\s*$", last)


@pytest.mark.parametrize("columns", [60, 120])
def test_the_bar_ends_when_the_work_fails(monkeypatch, columns):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(RuntimeError, match="boom"), Progress("x", 2, 1) as progress:
        raise RuntimeError("boom")
    assert not progress._bar.live.is_started
