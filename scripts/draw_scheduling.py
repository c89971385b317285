"""Draw how requests move: one picture for each strategy, from the tables in scripts/scheduling_states.

Usage: ``python scripts/draw_scheduling.py [--check]``. ``--check`` writes nothing and exits with 1 if a picture is not
what would be drawn.

To add a strategy write ``scripts/scheduling_states/<name>.toml``, run ``make docs`` and show
``../images/scheduling/<name>.svg`` in docs/reference/scheduling.md::

    title = "Dynamic batching"                    # what a screen reader says first
    description = "One or two sentences that say in words what the picture shows."

    [states.waits]                                # boxes on a grid; column and row begin at 0, halves may be used
    at = [0, 0]                                   # [column, row]
    text = "waits"                                # lines are separated by \\n
    kind = "plain"                                # plain (default), start, end or failure

    [[transitions]]
    from = "waits"
    to = "runs"
    label = "an instance is free"                 # lines are separated by \\n
    bend = 0                                      # optional, pixels: how far the arrow swings to its right hand side
"""

from __future__ import annotations

import math
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "scripts/scheduling_states"
PICTURES = ROOT / "docs/images/scheduling"

KINDS = ("plain", "start", "end", "failure")

_COLUMN, _ROW = 312, 122
_BOX_WIDTH, _BOX_HEIGHT = 140, 52
_MARGIN = 34
_LINE = 15
_LETTER = 6.3
_APART = 14

# Its own ground and two colour schemes: it is readable on any page.
_STYLE = """
  .ground { fill: #f8fafc; } text { fill: #0f172a; font: 13px system-ui, sans-serif; text-anchor: middle; }
  .label { fill: #334155; font-size: 12px; }
  .box { stroke-width: 1.5px; } .plain { fill: #e2e8f0; stroke: #64748b; } .start { fill: #dbeafe; stroke: #2563eb; }
  .end { fill: #dcfce7; stroke: #16a34a; } .failure { fill: #fee2e2; stroke: #dc2626; }
  .arrow { fill: none; stroke: #64748b; stroke-width: 1.5px; } .head { fill: #64748b; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0f172a; } text { fill: #f1f5f9; } .label { fill: #cbd5e1; }
    .plain { fill: #334155; stroke: #94a3b8; } .start { fill: #1e3a8a; stroke: #60a5fa; }
    .end { fill: #14532d; stroke: #4ade80; } .failure { fill: #7f1d1d; stroke: #f87171; }
    .arrow { stroke: #94a3b8; } .head { fill: #94a3b8; }
  }
"""


@dataclass(frozen=True)
class State:
    """One box."""

    text: str
    column: float
    row: float
    kind: str

    @property
    def centre(self) -> tuple[float, float]:
        """Where the box is."""
        return (
            _MARGIN + _BOX_WIDTH / 2 + self.column * _COLUMN,
            _MARGIN + _BOX_HEIGHT / 2 + self.row * _ROW,
        )


@dataclass(frozen=True)
class Transition:
    """One arrow."""

    before: str
    after: str
    label: str
    bend: float


@dataclass(frozen=True)
class Strategy:
    """One picture."""

    name: str
    title: str
    description: str
    states: dict[str, State]
    transitions: list[Transition]


def read(path: Path) -> Strategy:
    """Return the table of a file.

    Raises:
        ValueError: the table is wrong.
    """
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    states = {name: _state(path, name, row) for name, row in table["states"].items()}
    transitions = [
        Transition(row["from"], row["to"], row.get("label", ""), row.get("bend", 0)) for row in table["transitions"]
    ]
    for transition in transitions:
        for name in (transition.before, transition.after):
            if name not in states:
                raise ValueError(f"{path.name}: a transition names '{name}', which is no state")
    return Strategy(path.stem, table["title"], table["description"], states, transitions)


def _state(path: Path, name: str, row: dict[str, Any]) -> State:
    kind = row.get("kind", "plain")
    if kind not in KINDS:
        raise ValueError(f"{path.name}: the kind of '{name}' is not one of {', '.join(KINDS)}")
    column, line = row["at"]
    return State(row.get("text", name), column, line, kind)


def draw(strategy: Strategy) -> str:
    """Return the picture as SVG."""
    states = strategy.states.values()
    width = 2 * _MARGIN + _BOX_WIDTH + max(state.column for state in states) * _COLUMN
    height = 2 * _MARGIN + _BOX_HEIGHT + max(state.row for state in states) * _ROW
    arrows, gaps, labels = [], [], []
    for transition in strategy.transitions:
        arrow, place = _arrow(strategy, transition)
        arrows.append(arrow)
        if transition.label:
            gaps.append(_gap(transition.label, *place))
            labels.append(_text(transition.label, *place, css="label"))
    ids = f"{strategy.name}-title {strategy.name}-description"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
            f' height="{height:g}" role="img" aria-labelledby="{ids}">',
            f'<title id="{strategy.name}-title">{escape(strategy.title)}</title>',
            f'<desc id="{strategy.name}-description">{escape(strategy.description)}</desc>',
            f"<style>{_STYLE}</style>",
            f'<rect class="ground" width="{width:g}" height="{height:g}" rx="8"/>',
            *arrows,
            *gaps,
            *map(_box, states),
            *labels,
            "</svg>\n",
        ]
    )


def _box(state: State) -> str:
    x, y = state.centre
    rounded = 26 if state.kind in ("start", "end", "failure") else 6
    rect = (
        f'<rect class="box {state.kind}" x="{x - _BOX_WIDTH / 2:g}" y="{y - _BOX_HEIGHT / 2:g}" width="{_BOX_WIDTH}"'
        f' height="{_BOX_HEIGHT}" rx="{rounded}"/>'
    )
    return rect + "\n" + _text(state.text, x, y)


def _text(text: str, x: float, y: float, css: str = "") -> str:
    lines = text.split("\n")
    first = y - (len(lines) - 1) * _LINE / 2 + 4
    attribute = f' class="{css}"' if css else ""
    return "\n".join(
        f'<text{attribute} x="{x:.0f}" y="{first + number * _LINE:.0f}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )


def _gap(text: str, x: float, y: float) -> str:
    """Return the ground on which a label is readable although an arrow goes by."""
    lines = text.split("\n")
    width, height = max(map(len, lines)) * _LETTER + 10, len(lines) * _LINE + 4
    return (
        f'<rect class="ground" x="{x - width / 2:.0f}" y="{y - height / 2:.0f}" width="{width:.0f}" height="{height}"'
        ' rx="4"/>'
    )


def _arrow(strategy: Strategy, transition: Transition) -> tuple[str, tuple[float, float]]:
    """Return the arrow and the place of its label."""
    before, after = strategy.states[transition.before], strategy.states[transition.after]
    (x1, y1), (x2, y2) = before.centre, after.centre
    if before is after:
        return _loop(x1, y1)
    # two arrows between the same boxes keep to the right
    both_ways = any(t.before == transition.after and t.after == transition.before for t in strategy.transitions)
    bend = transition.bend or (2 * _APART if both_ways else 0)
    length = math.hypot(x2 - x1, y2 - y1)
    right = (-(y2 - y1) / length, (x2 - x1) / length)
    control = ((x1 + x2) / 2 + right[0] * bend * 2, (y1 + y2) / 2 + right[1] * bend * 2)
    start, end = _edge(x1, y1, *control), _edge(x2, y2, *control)
    middle = ((start[0] + end[0]) / 4 + control[0] / 2, (start[1] + end[1]) / 4 + control[1] / 2)
    path = f"M{start[0]:.1f} {start[1]:.1f} Q{control[0]:.1f} {control[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
    arrow = f'<path class="arrow" d="{path}"/>\n' + _head(control, end)
    return arrow, middle


def _loop(x: float, y: float) -> tuple[str, tuple[float, float]]:
    top = y - _BOX_HEIGHT / 2
    path = f"M{x - 16:g} {top:g} C{x - 26:g} {top - 30:g} {x + 26:g} {top - 30:g} {x + 16:g} {top:g}"
    arrow = f'<path class="arrow" d="{path}"/>\n' + _head((x + 22, top - 20), (x + 16, top))
    return arrow, (x, top - 30)


def _edge(x: float, y: float, towards_x: float, towards_y: float) -> tuple[float, float]:
    """Return where a line from the middle of a box leaves it."""
    dx, dy = towards_x - x, towards_y - y
    share = min(
        _BOX_WIDTH / 2 / abs(dx) if dx else math.inf,
        _BOX_HEIGHT / 2 / abs(dy) if dy else math.inf,
    )
    return x + dx * share, y + dy * share


def _head(before: tuple[float, float], tip: tuple[float, float]) -> str:
    angle = math.atan2(tip[1] - before[1], tip[0] - before[0])
    corners = [tip] + [
        (tip[0] - 9 * math.cos(angle + side), tip[1] - 9 * math.sin(angle + side)) for side in (0.4, -0.4)
    ]
    return '<polygon class="head" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in corners) + '"/>'


def drawn() -> dict[Path, str]:
    """Return what each picture should be."""
    return {PICTURES / f"{path.stem}.svg": draw(read(path)) for path in sorted(TABLES.glob("*.toml"))}


def outdated() -> list[str]:
    """Return the names of pictures that are not what would be drawn, and of those without a table."""
    wanted = drawn()
    old = [path.name for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    return old + [path.name for path in sorted(PICTURES.glob("*.svg")) if path not in wanted]


def main() -> int:
    """Draw the pictures, or complain about old ones."""
    if "--check" in sys.argv[1:]:
        old = outdated()
        for name in old:
            sys.stderr.write(f"docs/images/scheduling/{name} is old: run python scripts/draw_scheduling.py\n")
        return 1 if old else 0
    PICTURES.mkdir(parents=True, exist_ok=True)
    for path, text in drawn().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
