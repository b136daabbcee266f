"""Charts: the thesis' figures for our runs, and those that it wished for (thesis, 5.4).

One idea per chart, in plain words on its axes. Colours stay apart for those who see few; a run
keeps its colour on the whole page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import altair as alt
import pandas as pd

from pulsarcast.pipeline.beside import Bars
from pulsarcast.pipeline.report.frames import Frames

WIDTH: Final = 640
ALIKE_MAX: Final = 3.0
"""Runs that last at most so many times as long as the shortest are drawn in seconds."""
PALETTE: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444", "#8c6d31",
    "#7b4173", "#637939", "#843c39",
)  # fmt: skip
"""Colours that stay apart with the common kinds of colour blindness (Okabe and Ito), and more."""

ALL, NEARLY, TOO_FEW, NOTHING_DUE = "all", "99 % or more", "less than 99 %", "nothing due"
NEARLY_SHARE: Final = 0.99
SHADES: Final = {ALL: "#b8dfc8", NEARLY: "#fdd9a0", TOO_FEW: "#e8927c", NOTHING_DUE: "#eeeeee"}

Chart: TypeAlias = Any
"""One of altair's kinds of chart: what its methods return has no type."""


def draw(frames: Frames) -> dict[str, Chart]:
    """Every chart that these runs have data for, by name."""
    runs = list(frames.totals["run_id"])
    return {name: make(frames, runs) for name, make in CHARTS.items() if _has_data(name, frames)}


def draw_bars(given: Iterable[Bars]) -> dict[str, Chart]:
    """Charts of what a report puts beside its runs, by name."""
    return {bars.name: _bars(bars) for bars in given}


def _bars(given: Bars) -> Chart:
    data = pd.DataFrame(
        [(bar.group, bar.whose, bar.value, bar.text) for bar in given.bars],
        columns=["group", "whose", "value", "text"],
    )
    whose = list(dict.fromkeys(data["whose"]))
    colours = alt.Scale(domain=whose, range=["#bbbbbb", *PALETTE][: len(whose)])
    base = alt.Chart(data).encode(
        y=alt.Y("group:N", sort=None, title=None, axis=alt.Axis(labelLimit=240)),
        yOffset=alt.YOffset("whose:N", sort=whose),
        x=alt.X("value:Q", title=given.axis),
    )
    bars = base.mark_bar().encode(
        color=alt.Color("whose:N", scale=colours, legend=alt.Legend(title=None, orient="top")),
        tooltip=["group:N", "whose:N", "text:N"],
    )
    words = base.mark_text(align="left", dx=4, fontSize=10, color="#222").encode(text="text:N")
    return (bars + words).properties(
        width=WIDTH, height=alt.Step(15), title=_title(given.title, given.about)
    )


def _has_data(name: str, frames: Frames) -> bool:
    if name == "events-against-rpc":
        return bool((frames.topics["rpc_sent"] > 0).any())
    if name in ("load-over-nodes", "load-over-time"):
        return not frames.nodes.empty
    return name != "hops" or not frames.hops.empty


def _colour(runs: list[str], *, legend: bool = True) -> alt.Color:
    scale = alt.Scale(domain=runs, range=[PALETTE[at % len(PALETTE)] for at in range(len(runs))])
    shown: Any = alt.Legend(title=None, orient="top", columns=4, labelLimit=240) if legend else None
    return alt.Color("run_id:N", scale=scale, legend=shown)


def _fulfilment(frames: Frames, runs: list[str]) -> Chart:
    """How much of what was due arrived, per topic."""
    data = frames.topics.assign(fulfilled=_fulfilled(frames.topics))
    order = _by_size(data)
    base = alt.Chart(data).encode(
        y=alt.Y("name:N", sort=order, title=None, axis=alt.Axis(labelLimit=180)),
        x=alt.X("run_id:N", sort=runs, title=None, axis=alt.Axis(orient="top", labelAngle=-35)),
    )
    scale = alt.Scale(domain=list(SHADES), range=list(SHADES.values()))
    cells = base.mark_rect(stroke="white").encode(
        color=alt.Color("fulfilled:N", scale=scale, legend=alt.Legend(title=None, orient="right")),
        tooltip=[
            alt.Tooltip("run_id:N", title="run"),
            alt.Tooltip("name:N", title="topic"),
            alt.Tooltip("published:Q", format=","),
            alt.Tooltip("due:Q", format=","),
            alt.Tooltip("delivered:Q", format=","),
        ],
    )
    words = (
        base.transform_calculate(
            text="datum.due == 0 ? '–' : datum.delivered == datum.due"
            " ? format(datum.due, ',')"
            " : format(datum.delivered, ',') + ' of ' + format(datum.due, ',')"
        )
        .mark_text(fontSize=9, color="#222")
        .encode(text="text:N")
    )
    return (cells + words).properties(
        width=max(240, 92 * len(runs)),
        height=alt.Step(17),
        title=_title(
            "Fulfilment per topic: deliveries of what was due",
            "Each cell is a topic in a run; topics by number of events, the busiest first.",
        ),
    )


def _fulfilled(topics: pd.DataFrame) -> list[str]:
    """In words, because nearly all and all must not look alike."""
    words = []
    for due, delivered in zip(topics["due"], topics["delivered"], strict=True):
        if due == 0:
            words.append(NOTHING_DUE)
        elif delivered == due:
            words.append(ALL)
        else:
            words.append(NEARLY if delivered / due >= NEARLY_SHARE else TOO_FEW)
    return words


def _by_size(data: pd.DataFrame) -> list[str]:
    sizes = data.groupby("name")["published"].max()
    return [str(name) for name in sizes.sort_values(ascending=False, kind="stable").index]


def _events_against_rpc(frames: Frames, runs: list[str]) -> Chart:
    data = frames.topics[(frames.topics["rpc_sent"] > 0) & (frames.topics["published"] > 0)]
    points = (
        alt.Chart(data)
        .mark_point(filled=True, size=55, opacity=0.75)
        .encode(
            x=_decades("published:Q", "events of the topic", alt.X),
            y=_decades("rpc_sent:Q", "messages for the topic", alt.Y),
            color=_colour(runs),
            tooltip=["run_id:N", "name:N", "published:Q", "rpc_sent:Q", "delivered:Q"],
        )
    )
    return points.properties(
        width=WIDTH,
        height=300,
        title=_title(
            "Events against messages, per topic",
            "All messages that name the topic: events, joins, heartbeats, recovery.",
        ),
    )


def _decades(field: str, title: str, channel: Any) -> Any:
    """An axis by powers of ten, with a line for each."""
    axis = alt.Axis(values=[10**power for power in range(10)], format="~s")
    return channel(field, scale=alt.Scale(type="log"), axis=axis, title=title)


def _load_over_nodes(frames: Frames, runs: list[str]) -> Chart:
    data = frames.nodes
    with_messages = bool((data[data["measure"] == "rpc_sent"]["value"] > 0).any())
    wanted = {"rpc_sent": "messages sent", "rpc_received": "messages received"}
    if not with_messages:
        wanted = {"delivered": "deliveries"}
    data = data[data["measure"].isin(list(wanted))].assign(
        what=data["measure"].map(wanted),
        share=data["step"] / data.groupby("run_id")["step"].transform("max"),
    )
    return (
        alt.Chart(data)
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X(
                "share:Q", axis=alt.Axis(format="%"), title="nodes, from the idlest to the busiest"
            ),
            y=alt.Y("value:Q", axis=alt.Axis(format="~s"), title=None),
            color=_colour(runs),
            tooltip=["run_id:N", alt.Tooltip("share:Q", format=".0%"), "value:Q"],
        )
        .properties(width=WIDTH / len(wanted) - 20, height=260)
        .facet(column=alt.Column("what:N", title=None, sort=list(wanted.values())))
        .properties(
            title=_title(
                "Load over nodes",
                "A flat line is a load that all share; a steep end is a few nodes that carry more.",
            )
        )
    )


def _load_over_time(frames: Frames, runs: list[str]) -> Chart:
    height = 46
    lasts_s = frames.time.groupby("run_id")["time_s"].transform("max").clip(lower=1.0)
    data = frames.time.assign(share=frames.time["time_s"] / lasts_s)
    x = alt.X("time_s:Q", title="seconds, by each node's own clock")
    about = "A notch is a fault, or users who wait for one another."
    if lasts_s.max() > ALIKE_MAX * lasts_s.min():
        # In seconds, a run that lasts long would press the others together.
        x = alt.X("share:Q", title="share of the run's time", axis=alt.Axis(format="%"))
        about += f" Runs last from {lasts_s.min():,.0f} to {lasts_s.max():,.0f} s."
    return (
        alt.Chart(data)
        .mark_area(interpolate="step-after", opacity=0.85)
        .encode(
            x=x,
            y=alt.Y("delivered_per_s:Q", title=None, axis=alt.Axis(format="~s", tickCount=2)),
            color=_colour(runs, legend=False),
            tooltip=["run_id:N", "time_s:Q", alt.Tooltip("delivered_per_s:Q", format=",.0f")],
        )
        .properties(width=WIDTH, height=height)
        .facet(
            row=alt.Row(
                "run_id:N",
                title=None,
                sort=runs,
                header=alt.Header(labelAngle=0, labelAlign="left", labelOrient="left"),
            ),
            spacing=6,
        )
        .resolve_scale(y="independent")
        .properties(
            title=_title(
                "Load over time: deliveries a second",
                about,
            )
        )
    )


def _hops(frames: Frames, runs: list[str]) -> Chart:
    total = frames.hops.groupby("run_id")["deliveries"].transform("sum")
    data = frames.hops.assign(share=frames.hops["deliveries"] / total)
    return (
        alt.Chart(data)
        .mark_line(point=alt.OverlayMarkDef(size=28), strokeWidth=2)
        .encode(
            x=alt.X("hops:Q", axis=alt.Axis(tickMinStep=1, format="d"), title="hops"),
            y=alt.Y("share:Q", axis=alt.Axis(format="%"), title="share of deliveries"),
            color=_colour(runs),
            tooltip=["run_id:N", "hops:Q", alt.Tooltip("deliveries:Q", format=",")],
        )
        .properties(
            width=WIDTH,
            height=240,
            title=_title(
                "Hops from publisher to subscriber",
                "Of others' events; the last point of a line is the depth of its deepest tree.",
            ),
        )
    )


def _title(text: str, about: str) -> alt.TitleParams:
    return alt.TitleParams(
        text=text,
        subtitle=about,
        anchor="start",
        fontSize=15,
        subtitleColor="#666",
        subtitleFontSize=11,
        offset=12,
    )


CHARTS: Final[Mapping[str, Callable[[Frames, list[str]], Chart]]] = MappingProxyType(
    {
        "fulfilment": _fulfilment,
        "events-against-rpc": _events_against_rpc,
        "load-over-nodes": _load_over_nodes,
        "load-over-time": _load_over_time,
        "hops": _hops,
    }
)
"""In the order in which a page shows them."""
