"""Plots of the results in `results/*.json`."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from report import BENCH, RESULTS

PLOTS = BENCH / "plots"
BUTLERS_COLOUR, GREY = "#2f6f6d", "#b9b4a9"
PALETTE = ("#2f6f6d", "#d98e48", "#7a6a9c", "#4f7fb0", "#a8565f", "#8a8f3c", "#6d6d6d")
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e6e3dc",
    "legend.frameon": False,
    "figure.facecolor": "white",
    # Makes the files reproducible.
    "svg.hashsalt": "butlers",
    "svg.fonttype": "path",
}
_WORK = {"sweep": "sweep", "cleanup": "cleanup", "graph": "index upkeep"}
Measured = Mapping[str, Any]


def limits(measured: Measured) -> Figure:
    """Each call next to a stack of its parts."""
    figure, axes = plt.subplots(figsize=(9, 4.2), layout="constrained")
    tools = list(measured)
    parts = {"model": PALETTE[3], "SQL": PALETTE[1], "protocol": PALETTE[2]}
    bottoms = [0.0] * len(tools)
    positions = range(len(tools))
    for part, colour in parts.items():
        values = [measured[tool][part] for tool in tools]
        axes.bar(
            [position - 0.2 for position in positions],
            values,
            0.36,
            bottom=bottoms,
            color=colour,
            label=f"bare: {part}",
        )
        bottoms = [low + value for low, value in zip(bottoms, values, strict=True)]
    totals = [measured[tool]["whole"] for tool in tools]
    axes.bar([position + 0.2 for position in positions], totals, 0.36, color=BUTLERS_COLOUR, label="the whole call")
    for position, tool in enumerate(tools):
        point, label = (position + 0.2, measured[tool]["whole"]), f"{measured[tool]['ratio']:.2f}×"
        axes.annotate(label, point, ha="center", va="bottom", weight="bold")
    axes.set_xticks(list(positions), tools)
    axes.set_ylabel("ms, median")
    axes.set_title("A call over HTTP, and the bare parts it is made of")
    axes.legend()
    return figure


def growth(measured: Measured) -> Figure:
    """Calls, disk and background work by the number of memories."""
    points = measured["points"]
    sizes = [point["memories"] for point in points]
    figure, (calls, disk, work) = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    for name, colour in zip(("search", "recall", "context"), PALETTE, strict=False):
        calls.plot(sizes, [point[name] * 1000 for point in points], "o-", color=colour, label=name)
    calls.plot(sizes, [1000 / point["stores_a_second"] for point in points], "o--", color=GREY, label="store")
    calls.set_title("A call, ms")
    for name, colour in (("table", GREY), ("indexes", BUTLERS_COLOUR)):
        disk.plot(sizes, [point[name] / 2**20 for point in points], "o-", color=colour, label=name)
    disk.set_title("On disk, MiB")
    for (name, label), colour in zip(_WORK.items(), PALETTE, strict=False):
        work.plot(sizes, [point[name] for point in points], "o-", color=colour, label=label)
    work.set_title("Work in the background, s")
    for axes, logarithmic in ((calls, False), (disk, True), (work, True)):
        _format_size_axis(axes, sizes, logarithmic=logarithmic)
    return figure


def peers(measured: Measured) -> Figure:
    """Searches by the number of memories, stores a second, and the share of stored texts found again."""
    figure, (search, stores, found) = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained")
    names = [name for name, figures in measured.items() if any(key.startswith("search_p50") for key in figures)]
    sizes = sorted({int(key.rsplit("_", 1)[1]) for name in names for key in measured[name] if "search_p50" in key})
    for name, colour in zip(names, PALETTE, strict=False):
        measured_sizes = [size for size in sizes if isinstance(measured[name].get(f"search_p50_ms_{size}"), float)]
        times = [measured[name][f"search_p50_ms_{size}"] for size in measured_sizes]
        width = 2.6 if name.startswith("butlers") else 1.4
        search.plot(measured_sizes, times, "o-", color=colour, label=name, linewidth=width)
    search.set_title("A search, median ms")
    _format_size_axis(search, sizes, logarithmic=True)
    search.get_legend().remove()
    for axes, key, title in ((stores, "stores_a_second", "Stores a second"), (found, "found_share", "Found again")):
        values = [measured[name].get(f"{key}_{sizes[-1]}", 0.0) for name in names]
        bars = axes.barh(names, [value if isinstance(value, float) else 0.0 for value in values], color=PALETTE)
        axes.bar_label(bars, fmt="%.2g", padding=3, fontsize=8)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set_title(f"{title}, {_short(sizes[-1])} memories")
    found.set_yticklabels([])
    return figure


def _format_size_axis(axes: Axes, sizes: Sequence[int], *, logarithmic: bool) -> None:
    axes.set_xscale("log")
    axes.set_xticks(sizes, [_short(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("memories")
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.minorticks_off()
    else:
        axes.set_ylim(bottom=0)
    axes.legend()


def _short(size: int) -> str:
    return f"{size // 1_000_000} M" if size >= 1_000_000 else f"{size // 1000} k"


def quality(measured: Measured) -> Figure:
    """Recall@10 of each retriever, in one group of bars for each collection."""
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    retrievers = list(next(iter(measured.values())))
    width = 0.8 / len(retrievers)
    for number, retriever in enumerate(retrievers):
        values = [means[retriever]["recall@10"] * 100 for means in measured.values()]
        positions = [position + (number - len(retrievers) / 2 + 0.5) * width for position in range(len(measured))]
        baseline = not retriever.startswith(("search", "recall"))
        bars = axes.bar(positions, values, width * 0.92, color=GREY if baseline else PALETTE[number], label=retriever)
        if baseline:
            for bar in bars:
                bar.set_hatch("//" if retriever == "BM25" else "..")
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks(range(len(measured)), list(measured))
    axes.set_ylabel("recall@10, %")
    axes.set_title("Questions that find their answers among the first ten")
    axes.legend(ncols=3, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    return figure


PLOTS_BY_RESULT: dict[str, Callable[[Measured], Figure]] = {
    "limits": limits,
    "peers": peers,
    "growth": growth,
    "quality": quality,
}


def draw() -> list[Path]:
    """Draw the plots of all stored results; returns their paths."""
    PLOTS.mkdir(exist_ok=True)
    paths = []
    with mpl.rc_context(_STYLE):
        for name, plot in PLOTS_BY_RESULT.items():
            path = RESULTS / f"{name}.json"
            if not path.is_file():
                continue
            figure = plot(json.loads(path.read_text(encoding="utf-8"))["measured"])
            paths.append(PLOTS / f"{name}.svg")
            figure.savefig(paths[-1], metadata={"Date": None})
            plt.close(figure)
    return paths


if __name__ == "__main__":
    for path in draw():
        print(f"drawn: {path.relative_to(BENCH.parent)}")
