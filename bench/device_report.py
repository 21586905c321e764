"""Markdown of what bench/device_check.py has found so far."""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from launcher.devices import Device
from launcher.forecast.assumed import CONTEXT_BYTES
from launcher.units import MIB

Row = dict[str, Any]
Table = dict[str, Row]


def write_report(out: Path, device: Device | None, facts: Row) -> None:
    """Of all sections whose rows are there."""
    known = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in out.glob("*.json")}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    versions = ", ".join(f"{name} {value}" for name, value in facts.items() if name != "device")
    lines = [
        f"# {device.name if device else 'Card'}, {today}",
        "",
        f"`python bench/device_check.py`; {versions or 'no card'}",
    ]
    forecast, measured = known.get("forecast", {}), known.get("accuracy", {})
    lines += _section("Forecast", _forecasts(forecast) if not measured else _memory(forecast, measured))
    lines += _section("Seconds of the largest update", _seconds(forecast, measured))
    lines += _section("Within the budget", _cap(known.get("cap", {})))
    lines += _section("Speed", _speed(known.get("speed", {})))
    lines += _section("AdamW with its states on the host beside torch's, bit for bit", _exact(known.get("exact", {})))
    lines += _section("Half precision", _half(known.get("half", {})))
    lines += _section("The card", _card(known.get("context", {})))
    (out / "device_check.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return ["", f"## {title}", "", *found] if found else []


def _table(columns: list[str], rows: Iterable[list[str]]) -> list[str]:
    """The first column is text, all others are numbers."""
    marks = ["---", *["---:"] * (len(columns) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (columns, marks, *rows)]


def _why_not(rows: Table) -> list[str]:
    reasons = [(name, row.get("skipped") or row.get("error")) for name, row in rows.items()]
    lines = [f"- {name}: {reason}" for name, reason in reasons if reason]
    return ["", *lines] if lines else []


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / MIB:,.1f}"


def _percent(forecast: float, fact: float) -> str:
    return f"{100 * (forecast / fact - 1):+.2f} %"


def _forecasts(rows: Table) -> Iterator[str]:
    good = {name: row for name, row in rows.items() if "phases" in row}
    columns = ["MiB", "tensors", "allocated", "reserved", "on the host", "s per update", "s to forecast"]
    sizes = columns[1:4]
    cells = [
        [name, *(_mib(row[key]) for key in (*sizes, "host")), f"{row['seconds']:.3f}", f"{row['took']:.1f}"]
        for name, row in good.items()
    ]
    if rows:
        yield from [*_table(columns, cells), *_why_not(rows)]


def _memory(forecast: Table, measured: Table) -> Iterator[str]:
    """On a card what torch counts, on a CPU the tensors; `with cuBLAS`: its workspaces added to the forecast."""
    names = [name for name, row in measured.items() if "train" in row and "phases" in forecast.get(name, {})]
    kinds = list(measured[names[0]]["train"]) if names else []
    errors: dict[str, list[float]] = {}
    cells = []
    for name in names:
        plan, fact = forecast[name], measured[name]
        cells.append([name])
        for kind in kinds:
            most = max(fact["train"][kind], fact["evaluate"][kind])
            cells[-1] += [_mib(plan[kind]), _mib(most), _error(errors, kind, plan[kind], most)]
        most = max(fact["train"][kinds[0]], fact["evaluate"][kinds[0]])
        extra = fact["workspaces"] or 0
        cells[-1].append(_error(errors, "evaluation", plan["phases"]["evaluate"], fact["evaluate"][kinds[0]]))
        cells[-1] += [_mib(fact["workspaces"]), _error(errors, "with cuBLAS", plan[kinds[0]] + extra, most)]
    columns = ["MiB", *(words for kind in kinds for words in (f"{kind}, forecast", "fact", "error"))]
    yield from [*_table([*columns, "evaluation", "cuBLAS", "with cuBLAS"], cells), ""]
    for kind, values in errors.items():
        middle, largest = statistics.median(map(abs, values)), max(values, key=abs)
        yield f"- {kind}: median {100 * middle:.2f} %, largest {100 * largest:+.2f} %, {len(values)} cases"
    yield from [*_why_not(forecast), *_why_not(measured)]


def _error(errors: dict[str, list[float]], kind: str, forecast: float, fact: float) -> str:
    """Noted among the others of its kind."""
    errors.setdefault(kind, []).append(forecast / fact - 1)
    return _percent(forecast, fact)


def _seconds(forecast: Table, measured: Table) -> Iterator[str]:
    pairs = {
        name: (forecast[name]["seconds"], row["seconds"])
        for name, row in measured.items()
        if "seconds" in row and "seconds" in forecast.get(name, {})
    }
    if not pairs:
        return
    cells = [
        [name, f"{first:.4f}", f"{second:.4f}", f"{second / first:.2f}"] for name, (first, second) in pairs.items()
    ]
    yield from _table(["seconds", "predicted", "measured", "measured / predicted"], cells)
    if len(pairs) > 2:
        yield from ["", f"Spearman {spearman(*zip(*pairs.values(), strict=True)):.3f} over {len(pairs)} cases"]


def spearman(first: Iterable[float], second: Iterable[float]) -> float:
    """Rank correlation; equal values share the mean of their ranks."""
    ranks = [
        (values < values[:, None]).sum(1) + (values <= values[:, None]).sum(1) for values in _arrays(first, second)
    ]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _arrays(*many: Iterable[float]) -> list[np.ndarray]:
    return [np.array(list(values)) for values in many]


def _cap(rows: Table) -> Iterator[str]:
    """A row for each run."""
    names = "MiB, budget, peak, kept, planned, error in training, updates, loss, examples/s, relaunches, strategies"
    cells = []
    for name, row in rows.items():
        if "results" not in row:
            continue
        results, plan = row["results"], row["plan"]
        budget, train = results.get("budget", {}), results.get("forecast", {}).get("train")
        planned = plan["budget"]["total"] if plan["budget"] else None
        memory = [_mib(budget.get("bytes")), _mib(budget.get("peak")), str(budget.get("kept", "-")), _mib(planned)]
        error = _percent(train["forecast"], train["fact"]) if train else "-"
        losses = f"{row['losses'][0]:.3f} to {row['losses'][-1]:.3f}"
        speed = f"{results['examples_per_second']:.1f}"
        ends = [speed, str(len(results.get("relaunches", []))), ", ".join(plan["strategies"])]
        cells.append([name, *memory, error, str(results["updates"]), losses, *ends])
    if rows:
        yield from [*_table(names.split(", "), cells), *_why_not(rows)]


def _speed(rows: Table) -> Iterator[str]:
    """Against the first contestant, round by round."""
    speeds: dict[str, list[float]] = {}
    last: Table = {}
    for row in rows.values():
        if "contestant" in row:
            speeds.setdefault(row["contestant"], []).append(row["examples_per_second"])
            last[row["contestant"]] = row
    for base in list(speeds)[:2]:
        cells = []
        for name, found in speeds.items():
            row = last[name]
            ratios = [ours / theirs for ours, theirs in zip(found, speeds[base], strict=False)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            ends = [f"{row['micro_batches']:.1f}", _mib(row["reserved"])]
            cells.append([name, f"{statistics.median(found):.1f}", spread, *ends])
        columns = ["", "examples/s", f"times {base}", "micro-batches", "reserved, MiB"]
        yield from [*_table(columns, cells), ""]
    yield from _why_not(rows)


def _exact(rows: Table) -> Iterator[str]:
    for name, row in rows.items():
        if "different" in row:
            tensors = f"{row['different']} of {row['tensors']} tensors and their states differ"
            yield f"- {name}: {tensors} after {row['steps']} steps; states pinned: {row['pinned']}"
    yield from _why_not(rows)


def _half(rows: Table) -> Iterator[str]:
    good = {name: row for name, row in rows.items() if "learns" in row}
    cells = [
        [name, f"{row['first']:.3f}", f"{row['last']:.3f}", str(row["skipped"]), str(row["finite"])]
        for name, row in good.items()
    ]
    if rows:
        yield from [*_table(["", "loss at first", "at last", "steps left out", "finite"], cells), *_why_not(rows)]


def _card(rows: Table) -> Iterator[str]:
    steps = {name: row for name, row in rows.items() if "context" in row}
    if steps:
        columns = ["MiB after", "context", "allocated", "reserved"]
        cells = [[name, *(_mib(row[key]) for key in columns[1:])] for name, row in steps.items()]
        yield from [*_table(columns, cells), "", f"assumed for the context: {_mib(CONTEXT_BYTES)} MiB", ""]
    shown: dict[str, Callable[[Row], str]] = {
        "kernel": lambda row: row["kernel"],
        "kept": lambda row: f"kept {row['kept']} {row.get('says', '')}",
        "link": lambda row: f"asynchronous {row['asynchronous']}, {row['link'] / 1e9:.1f} GB/s",
    }
    for name, row in rows.items():
        yield from (f"- {name}: {show(row)}" for key, show in shown.items() if key in row)
    failed = {name: {"error": row["failed"]} for name, row in rows.items() if row.get("failed")}
    yield from _why_not(rows | failed)
