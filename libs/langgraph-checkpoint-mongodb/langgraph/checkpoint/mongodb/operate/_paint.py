"""How what was found looks in a terminal: tables, trees, small plots."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from xml.sax.saxutils import escape

from rich.console import Console, Group, RenderableType
from rich.markup import escape as plain
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from langgraph.checkpoint.mongodb.operate._indexes import IndexState
from langgraph.checkpoint.mongodb.operate._show import CheckpointNode, ThreadTree
from langgraph.checkpoint.mongodb.operate._stats import ChannelSize, Stats

__all__ = ["index_table", "plot", "plot_svg", "size", "stats_report", "thread_report"]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR = 30
_COLUMNS, _ROWS = 60, 6
_PICTURE, _FILE = 120, 200
_CHANNELS = 2


def size(number: int) -> str:
    """Bytes for a person."""
    value, unit = float(number), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def stats_report(found: Stats) -> RenderableType:
    """All that `stats` finds."""
    parts: list[RenderableType] = [_collections(found)]
    if found.threads:
        parts += [_counts(found), _histogram(found), _days(found), _threads(found)]
        parts.append(_channels("Largest values", found.largest_channels))
        if found.near_limit:
            parts.append(_channels("Near the 16 MB of one document", found.near_limit))
    return Group(*parts)


def _table(title: str, *columns: str) -> Table:
    """A table whose columns are on the right, but for the names."""
    table = Table(title=title, title_justify="left", title_style="bold", expand=False)
    for column in columns:
        left = column in ("collection", "thread", "namespace", "channel", "layout", "keys", "state")
        # What is cut off could not be copied.
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    return table


def _collections(found: Stats) -> Table:
    columns = ("collection", "documents", "bytes", "on disk", "indexes")
    table = _table("Collections", *columns)
    for one in found.collections:
        sizes = (size(number) for number in (one.bytes, one.stored, one.indexes))
        table.add_row(plain(one.name), f"{one.documents:,}", *sizes)
    return table


def _counts(found: Stats) -> Text:
    split = found.checkpoints - found.whole_checkpoints
    return Text.assemble(
        "\n",
        (f"{found.threads:,}", "bold"),
        " threads, ",
        (f"{found.checkpoints:,}", "bold"),
        f" checkpoints: {split:,} split, ",
        (f"{found.whole_checkpoints:,} in the old layout", "yellow" if split < 1 else ""),
        f" (of {found.whole_threads:,} threads)\n",
    )


def _histogram(found: Stats) -> Table:
    table = _table("Threads by their bytes", "up to", "threads", "")
    most = max(bucket.threads for bucket in found.histogram)
    for bucket in found.histogram:
        table.add_row(size(bucket.up_to), f"{bucket.threads:,}", _bar(bucket.threads, most))
    table.columns[-1].justify = "left"
    return table


def _days(found: Stats) -> Table:
    table = _table("Written each day, and still there", "day", "checkpoints", "bytes", "")
    most = max((day.bytes for day in found.days), default=0)
    for day in found.days[-10:]:
        bar = _bar(day.bytes, most)
        table.add_row(day.day.isoformat(), f"{day.checkpoints:,}", size(day.bytes), bar)
    table.columns[-1].justify = "left"
    return table


def _bar(number: int, most: int) -> Text:
    eighths = round(8 * _BAR * number / most) if most else 0
    full, rest = divmod(eighths, 8)
    return Text("█" * full + (_BLOCKS[rest] if rest and not full else ""), "cyan")


def _threads(found: Stats) -> Table:
    table = _table("Largest threads", "thread", "checkpoints", "bytes", "layout")
    for one in found.largest_threads:
        row = (plain(one.thread_id), f"{one.checkpoints:,}", size(one.bytes), one.layout)
        table.add_row(*row)
    return table


def _channels(title: str, channels: Sequence[ChannelSize]) -> Table:
    columns = ("thread", "namespace", "channel", "bytes", "a day", "full at")
    table = _table(title, *columns)
    for one in channels:
        full = one.full_at.date().isoformat() if one.full_at else ""
        names = (plain(name) for name in (one.thread_id, one.checkpoint_ns, one.channel))
        table.add_row(*names, size(one.bytes), size(one.a_day) if one.a_day else "", full)
    return table


def thread_report(tree: ThreadTree) -> RenderableType:
    """A thread: its checkpoints as trees, one for each namespace, and how its bytes grew."""
    namespaces: defaultdict[str, list[CheckpointNode]] = defaultdict(list)
    for node in tree.checkpoints:
        namespaces[node.checkpoint_ns].append(node)
    total = sum(tree.bytes.values())
    sizes = ", ".join(f"{role} {size(number)}" for role, number in tree.bytes.items())
    head = f"[bold]Thread {plain(tree.thread_id)}[/]: {size(total)} ({sizes})\n"
    parts: list[RenderableType] = [Text.from_markup(head)]
    parts += [_tree(name, nodes) for name, nodes in namespaces.items()]
    if len(tree.growth) > 1:
        parts.append(Text("\nBytes over time", "bold"))
        parts.append(plot(tree.growth))
    return Group(*parts)


def _tree(namespace: str, nodes: Sequence[CheckpointNode]) -> Tree:
    name = f"namespace {plain(namespace)}" if namespace else "the graph itself"
    layouts = {"whole": ", in the old layout"} if len({one.layout for one in nodes}) == 1 else {}
    count = f"{len(nodes)} checkpoints{layouts.get(nodes[0].layout, '')}"
    root = Tree(f"[bold]{name}[/]: {count}")
    children: defaultdict[str | None, list[CheckpointNode]] = defaultdict(list)
    known = {node.checkpoint_id for node in nodes}
    for node in nodes:
        parent = node.parent_id if node.parent_id in known else None
        children[parent].append(node)
    both = len({node.layout for node in nodes}) > 1
    first = children[None]
    waiting = [(root, one, len(first) > 1) for one in reversed(first)]
    while waiting:
        place, node, begins = waiting.pop()
        added = place.add(_line(node, with_layout=both))
        following = children[node.checkpoint_id]
        # A line without forks stays at its place, or a long thread would go off to the right.
        straight = len(following) == 1
        below = place if straight and not begins else added
        waiting += [(below, one, not straight) for one in reversed(following)]
    return root


def _line(node: CheckpointNode, *, with_layout: bool) -> RenderableType:
    text = Text()
    text.append(f"{node.step!s:>3} ", "bold")
    text.append(f"{node.source or '?':<6} ", "cyan")
    text.append(f"{node.checkpoint_id} ", "dim")
    text.append(f"{size(node.bytes):>8} ")
    largest = sorted(node.channels.items(), key=lambda one: -one[1])
    text.append(" ".join(f"{name} {size(number)}" for name, number in largest[:_CHANNELS]), "green")
    if len(largest) > _CHANNELS:
        text.append(f" +{len(largest) - _CHANNELS}", "green")
    if node.writes:
        text.append(f"  writes: {node.writes}", "magenta")
    if node.interrupts:
        text.append(f"  interrupts: {node.interrupts}", "bold yellow")
    if with_layout and node.layout == "whole":
        text.append("  old layout", "yellow")
    if node.hidden:
        text.append(f"  {node.hidden}", "red")
    if node.values is None:
        return text
    table = Table.grid(padding=(0, 1))
    for name, value in node.values.items():
        table.add_row(Text(name, "green"), Text(repr(value)))
    for question in node.questions or ():
        table.add_row(Text("asks", "yellow"), Text(repr(question)))
    return Group(text, table)


def plot(curve: Sequence[tuple[datetime, int]]) -> Text:
    """A curve of bytes over time, in block characters."""
    heights = _columns(curve)
    most = curve[-1][1]
    text = Text()
    for row in reversed(range(_ROWS)):
        label = size(most) if row == _ROWS - 1 else "0 B" if row == 0 else ""
        text.append(f"{label:>9} ")
        cells = (min(max(round(8 * (height * _ROWS / most - row)), 0), 8) for height in heights)
        text.append("".join(_BLOCKS[cell] for cell in cells) + "\n", "cyan")
    first, last = (f"{at:%Y-%m-%d %H:%M}" for at in (curve[0][0], curve[-1][0]))
    text.append(f"{'':>10}{first}{last:>{_COLUMNS - len(first)}}")
    return text


def _columns(curve: Sequence[tuple[datetime, int]]) -> list[int]:
    """How many bytes there were at evenly spaced moments."""
    first, last = curve[0][0], curve[-1][0]
    heights, place = [], 0
    for column in range(_COLUMNS):
        moment = first + (last - first) * column / (_COLUMNS - 1)
        while place + 1 < len(curve) and curve[place + 1][0] <= moment:
            place += 1
        heights.append(curve[place][1])
    return heights


def plot_svg(tree: ThreadTree) -> str:
    """The same curve as a picture for a file."""
    width, height, edge = 640, 240, 40
    curve = tree.growth or [(datetime.min, 0)]
    first, most = curve[0][0], max(curve[-1][1], 1)
    seconds = max((curve[-1][0] - first).total_seconds(), 1)
    points = " ".join(
        f"{edge + (width - 2 * edge) * (at - first).total_seconds() / seconds:.1f},"
        f"{height - edge - (height - 2 * edge) * number / most:.1f}"
        for at, number in curve
    )
    texts = (
        (edge, edge - 12, f"Thread {tree.thread_id}: {size(most)}"),
        (edge, height - 12, f"{first:%Y-%m-%d %H:%M}"),
        (width - 3.5 * edge, height - 12, f"{curve[-1][0]:%Y-%m-%d %H:%M}"),
    )
    written = "".join(f'<text x="{x}" y="{y}">{escape(text)}</text>' for x, y, text in texts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<polyline fill="none" stroke="teal" stroke-width="2" points="{points}"/>{written}</svg>\n'
    )


def index_table(found: Sequence[IndexState]) -> RenderableType:
    """The indexes, and below them the commands for those that are missing."""
    table = _table("Indexes", "collection", "keys", "state", "for", "bytes")
    colours = {"present": "green", "other": "dim"}
    for one in found:
        keys = ", ".join(f"{name} {way}" for name, way in one.keys.items())
        state = Text(one.state, colours.get(one.state, "bold red"))
        row = (plain(one.collection), keys, state, one.needed_for, size(one.bytes))
        table.add_row(*row)
    commands = [Text(one.command) for one in found if one.command]
    return Group(table, *commands)


def console(*, record: bool = False) -> Console:
    """Where reports go: as wide as the terminal, or as names need it in a file or a picture."""
    width = _PICTURE if record else None if sys.stdout.isatty() else _FILE
    return Console(record=record, width=width, highlight=False)
