"""The report's plots, as SVG data URIs. The same numbers give the same bytes: no dates, salted ids, no global state."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from ..results.format import AttackResult, Histogram, Roc
from ..say.words import number

# Okabe and Ito's palette, readable with every kind of colour vision; markers and dashes say the same in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = "os^Dv<>"
LINES: tuple[Any, ...] = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)))
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dpfl-audit",
    "svg.fonttype": "path",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#667788",
    "axes.labelcolor": "#222233",
    "xtick.color": "#444455",
    "ytick.color": "#444455",
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


@dataclass(frozen=True)
class Point:
    """A measured value y at x, with the limits of its interval and what its own control reaches; in the units of the
    axes.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    control: float | None = None


def point(x: float, attack: AttackResult, metric: str, control: float | None = None) -> Point:
    """A measured metric of an attack, to be drawn at x."""
    low, high = attack.intervals.get(metric) or (None, None)
    return Point(x, attack.value(metric) or 0.0, low, high, control)


def svg_of(paint: Callable[[Axes], None], height: float = 3.3) -> str:
    """What `paint` draws, as an SVG data URI; height in inches."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # A stranger's name may be in a script that our font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(4.5, height), layout="constrained")
        FigureCanvasSVG(figure)
        paint(figure.add_subplot())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _label(name: str, longest: int = 34) -> str:
    """A stranger's name as a label: cut to length, no mathematics in it, and never hidden by a leading underscore."""
    short = name if len(name) <= longest else name[: longest - 1] + "…"
    return short.replace("$", r"\$").lstrip("_") or "–"


def leakage(
    series: Mapping[str, Sequence[Point]],
    x_label: str,
    y_label: str,
    reference: float | None = None,
    reference_label: str = "",
    share: bool = False,
    log: bool = True,
) -> str:
    """Leakage, with intervals, against noise_std, clip norm or rounds.

    Args:
        series: points by the name of what else varies.
        x_label, y_label: of the axes.
        reference: the value that a control of all points reaches, None for none; a point's own control is a mark.
        reference_label: what that control is.
        share: y is in [0, 1] and shown in percent.
        log: a logarithmic x axis with a place for 0, else a linear one.
    """
    xs = sorted({point.x for points in series.values() for point in points})
    positive = [x for x in xs if x > 0]
    # 0 has no place on a logarithmic axis: it gets one a little to the left of the smallest positive value, and its own
    # tick.
    zero = min(positive) / max(3.0, (max(positive) / min(positive)) ** 0.2) if positive else 1.0

    crowded = len(series) > 2

    def place(x: float) -> float:
        return x if x > 0 or not log else zero

    def paint(axes: Axes) -> None:
        scale = 100 if share else 1
        marks: list[tuple[float, float]] = []
        for i, (name, points) in enumerate(series.items()):
            ordered = sorted(points, key=lambda point: point.x)
            y = [scale * point.y for point in ordered]
            # An interval need not contain its estimate; error bars must not be negative.
            below = [max(scale * (point.y - point.low), 0) if point.low is not None else 0 for point in ordered]
            above = [max(scale * (point.high - point.y), 0) if point.high is not None else 0 for point in ordered]
            aside = i - (len(series) - 1) / 2  # points at one x stand side by side
            colour = COLOURS[i % len(COLOURS)]
            x = [place(point.x) * 1.06**aside if log else point.x + 0.08 * aside for point in ordered]
            marks += [(at, scale * point.control) for at, point in zip(x, ordered) if point.control is not None]
            axes.errorbar(
                x,
                y,
                yerr=[below, above],
                color=colour,
                marker=MARKERS[i % len(MARKERS)],
                markersize=5,
                linestyle=LINES[i % len(LINES)],
                linewidth=1.6,
                elinewidth=1.1,
                capsize=3,
                label=_label(name),
            )
        if marks:
            axes.plot(*zip(*marks), "_", color="#444444", markersize=14, markeredgewidth=2, label="chance or control")
        if reference is not None:
            axes.axhline(
                scale * reference, color="#666666", linestyle=":", linewidth=1.4, label=_label(reference_label)
            )
        if share:
            axes.set_ylim(-4, 104)
        if log:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
            if len(xs) <= 8:
                axes.set_xticks([place(x) for x in xs], [number(x) for x in xs])
        elif len(xs) <= 12:
            axes.set_xticks(xs, [number(x) for x in xs])
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label + (" (%)" if share else ""))
        if crowded:
            _legend_below(axes)
        elif len(series) > 1 or reference is not None or marks:
            axes.legend()

    return svg_of(paint, 3.3 + (0.17 * (len(series) + 2) if crowded else 0))


def _legend_below(axes: Axes) -> None:
    """Many names would hide what is drawn."""
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=1, fontsize=8)


def plain_log_axis(axes: Axes) -> None:
    """The horizontal axis logarithmic where it spans more than a factor of 3, with ticks in plain numbers that do not
    overlap: 1, 2 or 5 times a power of ten, or powers alone over many.
    """
    low, high = axes.dataLim.intervalx
    if low <= 0 or high < 3 * low:
        return
    axes.set_xscale("log")
    steps = (1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=7))
    axes.xaxis.set_major_formatter(lambda x, _: number(x))
    axes.xaxis.set_minor_locator(NullLocator())


def roc_plot(curves: Mapping[str, Roc]) -> str:
    """True against false positive rate, both logarithmic, with the diagonal of guessing.

    Source: Carlini et al., arXiv:2112.03570.
    """
    rates = [rate for curve in curves.values() for rate in (*curve.fpr, *curve.tpr) if rate > 0]
    floor = 10.0 ** max(-5, min(-1, math.floor(math.log10(min(rates, default=0.1)))))

    below = len(curves) > 3

    def paint(axes: Axes) -> None:
        axes.plot([floor, 1], [floor, 1], color="#888888", linestyle=":", linewidth=1.4, label="guessing")
        for i, (name, curve) in enumerate(curves.items()):
            points = _thinned(curve, floor)
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=COLOURS[i % len(COLOURS)],
                linestyle=LINES[i % len(LINES)],
                linewidth=1.8,
                marker=MARKERS[i % len(MARKERS)],
                markersize=5,
                markevery=(0.05, 0.2),
                drawstyle="steps-post",
                label=_label(name, 40),
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(floor, 1)
        axes.set_ylim(floor, 1.1)
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("true positive rate")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_formatter(NullFormatter())  # over one decade there would be eight labels, one on another
        if below:
            _legend_below(axes)
        else:
            axes.legend(loc="lower right")

    return svg_of(paint, 3.3 + (0.17 * (len(curves) + 1) if below else 0))


def _thinned(curve: Roc, floor: float) -> list[tuple[float, float]]:
    """The curve's corners that the plot resolves: one in a hundredth of a decade at most, rates below `floor` at it."""
    kept: dict[tuple[int, int], tuple[float, float]] = {}
    for fpr, tpr in zip(curve.fpr, curve.tpr, strict=True):
        point = max(fpr, floor), max(tpr, floor)
        kept[round(100 * math.log10(point[0])), round(100 * math.log10(point[1]))] = point
    return sorted(kept.values())


def histogram(counts: Histogram) -> str:
    """Scores of members and non-members, each as a share of its own group."""

    def paint(axes: Axes) -> None:
        for values, name, colour, line in (
            (counts.members, "members", COLOURS[1], "-"),
            (counts.nonmembers, "non-members", COLOURS[0], "--"),
        ):
            # Filled for the eye, outlined for whoever cannot tell the two fills apart.
            shares = [100 * value / (sum(values) or 1) for value in values]
            axes.stairs(shares, counts.edges, fill=True, alpha=0.35, color=colour)
            axes.stairs(shares, counts.edges, color=colour, linestyle=line, linewidth=1.4, label=name)
        axes.set_xlabel("score of the attack")
        axes.set_ylabel("share of the group (%)")
        axes.legend()

    return svg_of(paint)
