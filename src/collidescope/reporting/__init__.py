"""The report: one summary dict, which is the JSON output and becomes one self-contained HTML file.

``summary`` collects numbers from the other rooms, ``words`` says them in sentences, ``html`` fills the template. The
page needs jinja2 and plotly (``pip install "collidescope[report]"``); the summary needs neither.
"""

from collidescope.reporting.html import report, write_report
from collidescope.reporting.summary import summarise

__all__ = ["report", "summarise", "write_report"]
