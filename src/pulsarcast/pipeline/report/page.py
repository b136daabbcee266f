"""The page: one HTML file that opens anywhere, with nothing to load, and the same as pictures."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd
import vl_convert

from pulsarcast.pipeline.beside import Beside, Table
from pulsarcast.pipeline.report.charts import Chart, draw, draw_bars
from pulsarcast.pipeline.report.frames import Frames

PICTURE_SCALE: Final = 2.0

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h1 + p { color: #666; margin-top: .2rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 0; } .wide { overflow-x: auto; }
tr.own td { font-weight: 600; }
table { border-collapse: collapse; margin: 1.2rem 0; font-size: .85rem; }
th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid #e4e4e4; }
td { white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
thead th { border-bottom: 2px solid #999; vertical-align: bottom; }
td.good { color: #1a7f4b; } td.bad { color: #b2182b; font-weight: 600; }
caption { caption-side: bottom; text-align: left; color: #666; padding-top: .4rem;
  white-space: normal; }
figure { margin: 2.2rem 0; overflow-x: auto; }
"""


class Measured(NamedTuple):
    """One run of the thesis (its table 5.8)."""

    run: str
    of_injected: str
    of_published: str
    published: str
    sent_mib: str


THESIS: Final = (
    Measured("Floodsub", "41 %", "41 %", "100 %", "6,552"),
    Measured("Pulsarcast, anyone publishes", "99.99 %", "99.99 %", "100 %", "2,238"),
    Measured("Pulsarcast, order guarantee", "37 %", "82 %", "46 %", "1,050"),
    Measured("Floodsub, latency", "31 %", "31 %", "100 %", "6,475"),
    Measured("Pulsarcast, latency", "52 %", "86 %", "60 %", "3,423"),
    Measured("Pulsarcast, order, latency", "32 %", "62 %", "53 %", "1,596"),
)
"""100 real processes, 25,000 Reddit comments of 2007; latency: 500 ms with 300 ms jitter."""


def write_report(
    frames: Frames, out: Path, *, title: str = "Pulsarcast", beside: Beside | None = None
) -> list[Path]:
    """Write `report.html` and a PNG per chart; returns all files."""
    out.mkdir(parents=True, exist_ok=True)
    charts = ({} if beside is None else draw_bars(beside.bars)) | draw(frames)
    written = [_write_picture(chart, out / f"{name}.png") for name, chart in charts.items()]
    page = out / "report.html"
    page.write_text(make_page(frames, charts, title=title, beside=beside), encoding="utf-8")
    return [page, *written]


def _write_picture(chart: Chart, path: Path) -> Path:
    path.write_bytes(vl_convert.vegalite_to_png(chart.to_json(), scale=PICTURE_SCALE))
    return path


def make_page(
    frames: Frames, charts: Mapping[str, Chart], *, title: str, beside: Beside | None = None
) -> str:
    """The page's text: tables, then charts, then the program that draws them."""
    around = _thesis_table() if beside is None else "\n".join(map(_given_table, beside.tables))
    figures = "\n".join(f'<figure id="{name}"></figure>' for name in charts)
    calls = "\n".join(
        f'vegaEmbed("#{name}", {_for_script(chart.to_dict())}, options);'
        for name, chart in charts.items()
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{html.escape(title)}</h1>
<p>{len(frames.totals)} runs, from their traces. Coverage is two integers: delivered of due.</p>
{_totals_table(frames.totals)}
{around}
{figures}
<script>{_program()}</script>
<script>
const options = {{actions: false, renderer: "svg"}};
{calls}
</script>
</body>
</html>
"""


def _program() -> str:
    """What draws: Vega, Vega-Lite and Vega-Embed, as global names."""
    return vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed; window.vegaLite = vegaLite; window.vega = vega;"
    )


def _for_script(spec: object) -> str:
    """JSON that may stand inside of a script element, whatever a topic is called."""
    return json.dumps(spec).replace("<", "\\u003c")


def _totals_table(totals: pd.DataFrame) -> str:
    traced = any(pd.notna(sent) and sent for sent in totals["rpc_sent"])
    head = ["run", "nodes", "events", "delivered of due", "undecided", "lost", "duplicates"]
    head += ["messages per delivery"] * traced
    head += ["hops, max", "faults"]
    rows = []
    for row in totals.to_dict("records"):
        complete = row["delivered"] == row["due"]
        share = f"{row['delivered'] / row['due']:.4%}" if row["due"] else "–"
        rows.append(
            [
                _cell(str(row["run_id"])),
                _cell(_count(row["nodes"])),
                _cell(_count(row["published"])),
                _cell(
                    f"{_count(row['delivered'])} of {_count(row['due'])} ({share})",
                    "good" if complete else "bad",
                ),
                _cell(_count(row["undecided"])),
                _cell(_count(row["lost"]), "bad" if row["lost"] else ""),
                _cell(_count(row["duplicates"]), "bad" if row["duplicates"] else ""),
                *[_cell(_per_delivery(row))] * traced,
                _cell(_count(row["hops_max"])),
                _cell(_count(row["faults"])),
            ]
        )
    about = "Undecided: events concurrent with a join or a leave."
    if traced:
        about += " Messages are all that were sent, upkeep included, of runs traced at level rpc."
    return _table(head, rows, about)


def _per_delivery(row: Mapping[Hashable, Any]) -> str:
    sent, delivered = row["rpc_sent"], row["delivered"]
    return f"{sent / delivered:.2f}" if pd.notna(sent) and sent and delivered else "–"


def _thesis_table() -> str:
    head = ("thesis, table 5.8", "coverage of injected", "of published", "published", "sent, MiB")
    rows = [[_cell(value) for value in run] for run in THESIS]
    about = (
        "What the thesis measured: 100 processes on 10 virtual cores, the same workload; with "
        "latency, every incoming packet 500 ms late, give or take 300 ms. Simulated runs share "
        "the workload and the delays, not the machines."
    )
    return _table(head, rows, about)


def _given_table(table: Table) -> str:
    rows = [[_cell(value) for value in row] for row in table.rows]
    heading = f"<h2>{html.escape(table.title)}</h2>"
    return heading + _table(table.head, rows, table.about, own=table.own)


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    about: str,
    own: Sequence[bool] | None = None,
) -> str:
    titles = "".join(f"<th>{html.escape(each)}</th>" for each in head)
    marks = ["own" if each else "" for each in own or [False] * len(rows)]
    body = "\n".join(
        f'<tr class="{mark}">{"".join(row)}</tr>' for mark, row in zip(marks, rows, strict=True)
    )
    return (
        f'<div class="wide"><table><caption>{_words(about)}</caption>'
        f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _words(text: str) -> str:
    """Text in which backticks mark code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _cell(text: str, style: str = "") -> str:
    return (
        f'<td class="{style}">{html.escape(text)}</td>'
        if style
        else f"<td>{html.escape(text)}</td>"
    )


def _count(value: Any) -> str:
    return "–" if pd.isna(value) else f"{int(value):,}"
