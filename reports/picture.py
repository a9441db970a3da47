"""Pictures for the HTML page: inline SVG whose colours are the page's CSS variables, so that dark mode reaches them."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

# matplotlib takes no CSS variables: each of these stand-in colours is replaced by one in the finished SVG.
INK, RULE, LINE, BUG = "#010a01", "#010a02", "#010a03", "#010a04"
_VARIABLES = {INK: "var(--soft)", RULE: "var(--rule)", LINE: "var(--accent)", BUG: "var(--bug)"}
# Inches at 72 px: small enough that the text stays readable when a phone shows the picture 370 px wide.
_SIZE = (6.2, 3.2)
_FONT_SIZE = 13
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it is searchable and takes the page's font
    "svg.hashsalt": "seamripper",  # equal data gives an equal page
    "font.size": _FONT_SIZE,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": RULE,
}


def programs_picture(over_time: pd.DataFrame, first_seen: pd.DataFrame) -> str:
    """Programs run so far, with a mark where each fault was first seen. "" when nothing ran."""
    if over_time.empty:
        return ""
    scale, unit = _time_unit(float(over_time["until_seconds"].iloc[-1]))
    with matplotlib.rc_context(_SETTINGS):
        figure, axes = _axes(f"{unit} since the start", "programs run")
        times = [0.0, *(over_time["until_seconds"] / scale)]
        totals = [0.0, *over_time["programs"]]
        axes.plot(times, totals, color=LINE, linewidth=2)
        axes.fill_between(times, totals, color=LINE, alpha=0.12, linewidth=0)
        seen, ran = first_seen["first_seconds"] / scale, first_seen["first_programs"]
        axes.plot(seen, ran, linestyle="none", marker="o", markersize=7, color=BUG, clip_on=False, zorder=3)
        axes.set_ylim(bottom=0)
        count = len(first_seen)
        faults = "1 fault" if count == 1 else f"{count} different faults"
        return _svg(figure, f"Programs run over time: {totals[-1]:,.0f} in all; {faults} met")


def speed_picture(over_time: pd.DataFrame) -> str:
    """Steps a second through the run. "" when nothing ran."""
    if over_time.empty:
        return ""
    scale, unit = _time_unit(float(over_time["until_seconds"].iloc[-1]))
    with matplotlib.rc_context(_SETTINGS):
        figure, axes = _axes(f"{unit} since the start", "steps a second")
        edges = [0.0, *(over_time["until_seconds"] / scale)]
        axes.stairs(over_time["steps_per_second"], edges, color=LINE, linewidth=2)
        axes.stairs(over_time["steps_per_second"], edges, color=LINE, fill=True, alpha=0.12, linewidth=0)
        axes.set_ylim(bottom=0)
        mean = over_time["steps_per_second"].mean()
        return _svg(figure, f"Steps a second over time: {mean:,.1f} on average")


def _time_unit(end_seconds: float) -> tuple[float, str]:
    """Seconds up to three minutes, minutes up to three hours, then hours: two- or three-digit ticks at most."""
    if end_seconds < 180:
        return 1.0, "seconds"
    return (60.0, "minutes") if end_seconds < 3 * 3600 else (3600.0, "hours")


def _axes(x_label: str, y_label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.8)
    axes.tick_params(length=0, pad=6)
    axes.set_xlabel(x_label)
    axes.set_title(y_label, loc="left", color=INK, fontsize=_FONT_SIZE)
    axes.margins(x=0)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    return figure, axes


def _svg(figure: Figure, label: str) -> str:
    """The figure as an <svg> element: no prolog, no metadata, no ids that two pictures on a page would share."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{label}">', text)
    text = re.sub(r"font: [^;\"]*?(\d+)px[^;\"]*", r"font-size: \1px", text)
    for stand_in, variable in _VARIABLES.items():
        text = text.replace(stand_in, variable)
    return text.replace("xlink:href", "href")
