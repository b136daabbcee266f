"""Reports: runs side by side, as pictures and one page that needs nothing else to be opened.

`frames` boils traces down to small tables on Spark; `charts` draws those; `page` puts the pictures
and the figures that the thesis measured beside each other. Topics and counts are shown, never
people.
"""

from pulsarcast.pipeline.report.charts import CHARTS, draw
from pulsarcast.pipeline.report.frames import Frames, boil_down
from pulsarcast.pipeline.report.page import write_report

__all__ = ["CHARTS", "Frames", "boil_down", "draw", "write_report"]
