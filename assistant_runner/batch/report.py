"""A report of a batch in one HTML file: endings, times, tokens, slowest and failed rows. No network."""

import html
import math
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Any

SHOWN = 50
BARS = 24


@dataclass(slots=True)
class Statistics:
    """What the rows of an output say together. `seconds` and `tokens` are those of answered rows, one
    each; `spent` counts the tokens of all."""

    rows: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    seconds: "array[float]" = field(default_factory=lambda: array("d"))
    tokens: "array[float]" = field(default_factory=lambda: array("d"))
    spent: int = 0
    cost: float = 0.0
    priced: int = 0
    retried: int = 0
    failed: list[dict[str, Any]] = field(default_factory=list)
    warned: list[tuple[str, str]] = field(default_factory=list)
    warnings: int = 0
    slowest: list[tuple[float, int, str]] = field(default_factory=list)
    first_at: float = math.inf
    last_at: float = 0.0

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        ending = "checks failed" if row["status"] == "ok" and row.get("passed") is False else row["status"]
        self.endings[ending] += 1
        if ending != "ok" and len(self.failed) < SHOWN:
            self.failed.append(dict(row))
        for warning in row.get("warnings") or []:
            self.warnings += 1
            if len(self.warned) < SHOWN:
                self.warned.append((row_label(row), str(warning)))
        if row.get("error"):
            self.kinds[str(row["error"].get("kind"))] += 1
        self.tools.update(call["name"] for call in row.get("tool_calls") or [])
        if row.get("model"):
            self.models[str(row["model"])] += 1
        self.retried += (row.get("attempts") or 1) > 1
        if row.get("cost") is not None:
            self.cost += float(row["cost"])
            self.priced += 1
        seconds = float(row.get("duration_s") or 0)
        tokens = int((row.get("usage") or {}).get("total_tokens") or 0)
        self.spent += tokens
        if row.get("started_at"):
            self.first_at = min(self.first_at, float(row["started_at"]))
            self.last_at = max(self.last_at, float(row["started_at"]) + seconds)
        if row["status"] == "ok":
            self.seconds.append(seconds)
            self.tokens.append(float(tokens))
            entry = (seconds, int(row["index"]), row_label(row))
            if len(self.slowest) < 10:
                heappush(self.slowest, entry)
            else:
                heappushpop(self.slowest, entry)


def gather(rows: Iterable[Mapping[str, Any]]) -> Statistics:
    """The statistics of these rows; memory holds two numbers a row."""
    statistics = Statistics()
    for row in rows:
        statistics.add(row)
    return statistics


def row_label(row: Mapping[str, Any]) -> str:
    """For people: the id, or the line."""
    return str(row["id"]) if row.get("id") is not None else f"line {row.get('line')}"


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of sorted values; 0 for none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def short(value: float) -> str:
    """Three figures, and whole numbers with separators above a thousand."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def write_report(path: Path, rows: Iterable[Mapping[str, Any]], *, title: str, made_at: float) -> None:
    """Write the page. `made_at` in Unix seconds."""
    path.write_text(render_report(gather(rows), title=title, made_at=made_at), encoding="utf-8")


def render_report(found: Statistics, *, title: str, made_at: float) -> str:
    """The page as text."""
    seconds, tokens = sorted(found.seconds), sorted(found.tokens)
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(made_at))
    wall = max(0.0, found.last_at - found.first_at) if found.last_at else 0.0
    ok = found.endings["ok"]
    tiles = [
        ("rows", f"{found.rows:,}"),
        ("answered", f"{ok:,}"),
        ("not answered or not passed", f"{found.rows - ok:,}"),
        ("median time", f"{quantile(seconds, 0.5):.2f} s"),
        ("95 % within", f"{quantile(seconds, 0.95):.2f} s"),
        ("first to last", f"{wall:.1f} s"),
        ("tokens", f"{found.spent:,}"),
        ("cost", f"{found.cost:,.4f}" if found.priced else "no price known"),
    ]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>Batch: {html.escape(title)}</title><style>{_CSS}</style>",
        f"<main><h1>{html.escape(title)}</h1><p class=dim>Batch report, {when}</p>",
        "<section class=tiles>",
        *(f"<div><b>{html.escape(value)}</b><span>{name}</span></div>" for name, value in tiles),
        "</section>",
        _counts("Endings", found.endings, found.rows, classes=True),
        _histogram("Time per answered row", seconds, "s"),
        _histogram("Tokens per answered row", tokens, ""),
        _counts("Errors", found.kinds, sum(found.kinds.values())),
        _counts("Tool calls", found.tools, sum(found.tools.values())),
        _counts("Models", found.models, sum(found.models.values())),
        _slowest(found),
        _failed(found),
        _warned(found),
        "</main></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _counts(title: str, counts: Counter[str], whole: int, *, classes: bool = False) -> str:
    if not counts:
        return ""
    lines = []
    for name, count in counts.most_common(12):
        share = 100 * count / max(1, whole)
        kind = ("good" if name == "ok" else "bad") if classes else "plain"
        lines.append(
            f"<tr><th>{html.escape(name)}<td class=number>{count:,}"
            f"<td class=bar><i class={kind} style='width:{share:.1f}%'></i><td class=number>{share:.1f} %"
        )
    return f"<section><h2>{title}</h2><table>{''.join(lines)}</table></section>"


def _histogram(title: str, ordered: Sequence[float], unit: str) -> str:
    """Bars of equal width up to the 99th percentile; what lies above it is in the last."""
    if not ordered or ordered[-1] <= 0:
        return ""
    low, high = ordered[0], max(quantile(ordered, 0.99), ordered[0] + 1e-9)
    bars = [0] * BARS
    for value in ordered:
        bars[min(BARS - 1, max(0, int((value - low) / (high - low) * BARS)))] += 1
    most, width, height = max(bars), 28, 140
    shapes = []
    for number, count in enumerate(bars):
        tall = height * count / most
        begin = low + (high - low) * number / BARS
        label = f"from {short(begin)} {unit}: {count:,} rows".replace(" :", ":")
        shapes.append(
            f"<rect x={number * width} y={height - tall:.1f} width={width - 3} height={max(tall, 0.5):.1f}>"
            f"<title>{label}</title></rect>"
        )
    middle = (quantile(ordered, 0.5) - low) / (high - low) * BARS * width
    shapes.append(f"<line x1={middle:.1f} x2={middle:.1f} y1=0 y2={height}><title>median</title></line>")
    axis = (
        f"<text x=0 y={height + 18}>{short(low)} {unit}</text>"
        f"<text x={BARS * width} y={height + 18} text-anchor=end>{short(high)} {unit} and more</text>"
    )
    marks = ", ".join(
        f"{name} {short(quantile(ordered, share))} {unit}".strip()
        for name, share in (("median", 0.5), ("90 %", 0.9), ("95 %", 0.95), ("99 %", 0.99), ("most", 1.0))
    )
    return (
        f"<section><h2>{title}</h2><svg viewBox='0 0 {BARS * width} {height + 24}' role=img"
        f" aria-label='{title}'>{''.join(shapes)}{axis}</svg><p class=dim>{marks}</p></section>"
    )


def _slowest(found: Statistics) -> str:
    if not found.slowest:
        return ""
    lines = "".join(
        f"<tr><th>{html.escape(label)}<td class=number>{index}<td class=number>{seconds:.2f} s"
        for seconds, index, label in sorted(found.slowest, reverse=True)
    )
    head = "<tr class=head><th>row<td class=number>index<td class=number>time"
    return f"<section><h2>Slowest rows</h2><table>{head}{lines}</table></section>"


def _failed(found: Statistics) -> str:
    if not found.failed:
        return ""
    lines = []
    for row in found.failed:
        error = row.get("error") or {}
        missed = "; ".join(check["why"] for check in row.get("checks") or [] if not check["passed"])
        why = error.get("message") or missed or row["status"]
        kind = error.get("kind") or "checks"
        lines.append(
            f"<tr><th>{html.escape(row_label(row))}<td>{html.escape(str(kind))}"
            f"<td class=why>{html.escape(str(why)[:500])}"
        )
    total = found.rows - found.endings["ok"]
    head = "<tr class=head><th>row<td>kind<td>why"
    return _rows("Rows without an answer that passed", head, lines, total)


def _warned(found: Statistics) -> str:
    lines = [
        f"<tr><th>{html.escape(label)}<td class=why>{html.escape(words[:500])}"
        for label, words in found.warned
    ]
    return _rows("Warnings", "<tr class=head><th>row<td>what", lines, found.warnings) if lines else ""


def _rows(title: str, head: str, lines: Sequence[str], total: int) -> str:
    more = f"<p class=dim>the first {SHOWN} of {total:,}</p>" if total > len(lines) else ""
    return f"<section><h2>{title}</h2><table>{head}{''.join(lines)}</table>{more}</section>"


_CSS = """
:root{color-scheme:light dark;--ink:#1d232b;--dim:#66707c;--ground:#fff;--panel:#f4f6f8;--line:#dfe3e8;
--plain:#4472c4;--good:#2e8b57;--bad:#c0392b}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ed;--dim:#9aa4af;--ground:#15191e;--panel:#1e242b;
--line:#323a44;--plain:#7aa2e8;--good:#5cc08a;--bad:#e8776b}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:900px;margin:0 auto;padding:32px 20px 64px}
h1{margin:0;font-size:26px;overflow-wrap:anywhere}h2{margin:0 0 10px;font-size:17px}
.dim{color:var(--dim);margin:6px 0 0}
section{margin-top:32px}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(190px,1fr));gap:12px}
.tiles div{background:var(--panel);border-radius:8px;padding:12px 14px}
.tiles b{display:block;font-size:21px;font-variant-numeric:tabular-nums}
.tiles span{color:var(--dim);font-size:13px}
table{border-collapse:collapse;width:100%}
th,td{padding:5px 10px 5px 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;
font-weight:400}
.head th,.head td{color:var(--dim);font-size:13px}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;width:90px}
.bar{width:45%}
.bar i{display:block;height:12px;margin-top:6px;border-radius:3px;background:var(--plain);min-width:2px}
.bar i.good{background:var(--good)}.bar i.bad{background:var(--bad)}
.why{overflow-wrap:anywhere}
svg{width:100%;height:auto;display:block}rect{fill:var(--plain)}
line{stroke:var(--bad);stroke-width:2;stroke-dasharray:5 4}
text{fill:var(--dim);font-size:13px}
"""
