"""Everything that only a CUDA card can show, in under eight minutes: forecasts, the cap, speed, exactness, the context.

    python bench/device_check.py [--out FOLDER] [--seconds 460] [--only SECTION ...]
    python bench/device_check.py --cpu              # the same in small without a card; what needs one says so
    python bench/device_check.py --plan-only H200   # the forecasts alone, in full size, for a card that is not here

What it takes along: this checkout and a folder of wheels. No model and no text is fetched: models are made from their
configs with random weights, texts from a seed. With a network, on a machine of the card's system and Python:

    pip wheel --wheel-dir wheels --constraint constraints.txt .     # torch from the index that fits the card's driver

and beside the card:

    python -m venv .venv && .venv/bin/pip install --no-index --find-links wheels --editable .
    .venv/bin/python bench/device_check.py

Where torch is there already, `pip install --no-deps --target site wheels/*` and `PYTHONPATH=site:.` do.

Each section is a file in FOLDER ($OUT, else runs/device_check) that grows row by row; started again, what is there is
not done again. A section that takes too long is ended, what it has shown stays, and the next one starts. At the end
device_check.md is written, to be committed. This process itself never touches the card: all work is done in others, so
that each begins with clean counters and nothing of a driver's context is counted twice.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from device_cases import FULL, TINY, Case, Scale, cases, file_name, make_world  # noqa: E402
from device_process import Job, Rows  # noqa: E402
from device_report import write_report  # noqa: E402

from launcher.devices import CPU, Device, find_device  # noqa: E402
from launcher.forecast.assumed import CONTEXT_BYTES  # noqa: E402

# Seconds that each may take at most, in the order in which they run.
LIMITS = {"forecast": 120, "context": 40, "cap": 150, "accuracy": 210, "exact": 40, "half": 60, "speed": 110}
NO_TIME = "no time was left"
NO_CARD = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
LEFT_TO_RELAUNCH = 0.85  # of what a run reserves: it must end, and fit with micro-batches of three quarters


class Check:
    """`scale`, `device` and folders of one check; `work` is thrown away, `out` is what it is for."""

    def __init__(
        self, scale: Scale, device: Device | None, out: Path, work: Path, names: list[str], seconds: float
    ) -> None:
        self.scale, self.out, self.work, self.names = scale, out, work, names
        self.end = time.monotonic() + seconds
        self.device, self.has_card = device, device is None
        self.facts: dict[str, Any] = {}

    def left(self, limit: float) -> float:
        return max(1.0, min(limit, self.end - time.monotonic()))

    def job(self, name: str, *arguments: str, **environment: str) -> Job:
        return Job.of(name, self.work, arguments, environment)

    def look(self) -> None:
        """The card by a process of its own."""
        if self.device is None:
            self.facts = next(iter(self.job("card").rows(60)), {})
            if "device" not in self.facts:
                raise SystemExit(f"no CUDA card: {self.facts}; --cpu and --plan-only CARD need none")
            self.device = Device.from_json(self.facts["device"])
        (self.work / "device.json").write_text(json.dumps(asdict(self.device)), encoding="utf-8")


def forecast(check: Check, rows: Rows, end: float) -> None:
    """Of all cases, shared among processes that see no card; beside them the plans that later sections start from."""
    open_cases = [case.name for case in cases(check.scale) if rows.is_open(case.name)]
    workers = min(6, max(1, (os.cpu_count() or 1) // 2))
    jobs = [check.job("forecast", *share, **NO_CARD) for n in range(workers) if (share := open_cases[n::workers])]

    runs = list(filter(Rows(check.out, "cap").is_open, CAPS)) if "cap" in check.names else []
    if "speed" in check.names and not Rows(check.out, "speed").is_done:
        runs.append("speed")
    with ThreadPoolExecutor(workers + len(CAPS) + 1) as pool:
        done = [pool.submit(keep_all, job, rows, end) for job in jobs]
        for one in [*done, *(pool.submit(plan_ahead, check, name, end) for name in runs)]:
            one.result()


# name of a run -> what it is allowed
CAPS = {"cap": [], "cap, Adafactor allowed": ["memory.allow=[adafactor]"]}


def asked(check: Check, name: str) -> tuple[list[str], dict[str, str]]:
    """Recipe, overrides and environment of a run within the budget; each has a cache of its own, empty at first."""
    recipe = "speed" if name == "speed" else "cap"
    words = [str(check.work / f"{recipe}.yaml"), f"memory.budget={check.scale.budget}", *CAPS.get(name, [])]
    return words, {"FRUGAL_LAUNCHER_CACHE": str(check.work / f"cache-{file_name(name)}")}


def plan_ahead(check: Check, name: str, end: float) -> None:
    words, environment = asked(check, name)
    command = [sys.executable, "-m", "launcher", "plan", "--json", *words]
    Job(f"plan {name}", command, check.work, environment).finish(end - time.monotonic())


def context(check: Check, rows: Rows, end: float) -> None:
    if check.has_card:
        keep_all(check.job("context"), rows, end)
    else:
        rows.keep({"name": "context", "skipped": "there is no card"})


def cap(check: Check, rows: Rows, end: float) -> None:
    """`launcher run` under a hard budget, then a run that meets a card with too little left."""
    for name in filter(rows.is_open, CAPS):
        words, environment = asked(check, name)
        words.append(f"output.folder={check.work / file_name(name)}")
        rows.keep({"name": name} | launched(check, words, environment, end))
    if check.has_card and rows.is_open("relaunch"):
        rows.keep({"name": "relaunch"} | relaunched(check, end))


def launched(check: Check, words: list[str], environment: dict[str, str], end: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "launcher", "run", "--processes", "1", *words]
    failed = Job("run", command, check.work, environment).finish(end - time.monotonic())
    folder = Path(words[-1].partition("=")[2])
    found = sorted(folder.glob("*/results.json"))
    if failed or not found:
        return {"error": failed or "no results.json"}
    plan = json.loads(found[-1].with_name("plan.json").read_text())
    lines = found[-1].with_name("metrics.jsonl").read_text().splitlines()
    losses = [line["loss"] for line in map(json.loads, lines) if line["kind"] == "update"]
    return {"results": json.loads(found[-1].read_text()), "losses": losses, "plan": plan}


def relaunched(check: Check, end: float) -> dict[str, Any]:
    """Another process takes so much of the card that the first micro-batches do not fit."""
    case = cases(check.scale)[0]
    known = Rows(check.out, "forecast").rows.get(case.name, {})
    if "reserved" not in known:
        return {"skipped": "its forecast is missing"}
    left = round(LEFT_TO_RELAUNCH * known["reserved"]) + CONTEXT_BYTES
    hog = check.job("hog", str(left))
    try:
        if "holds" not in hog.first_row():
            return {"error": "the card could not be filled"}
        words = [str(check.work / f"{file_name(case.name)}.yaml"), f"output.folder={check.work / 'relaunch'}"]
        return {"left": left} | launched(check, words, {}, end)
    finally:
        hog.stop()


def accuracy(check: Check, rows: Rows, end: float) -> None:
    """Each case in a fresh process; where cores are plenty, the next one loads while this one trains."""
    waiting = [case for case in cases(check.scale) if rows.is_open(case.name)]
    ahead = 1 if (os.cpu_count() or 1) >= 8 else 0
    started: list[tuple[Case, Job]] = []
    while waiting or started:
        while waiting and len(started) <= ahead:
            case = waiting.pop(0)
            wait = {"DEVICE_CHECK_WAITS": "1", **case.environment}
            started.append((case, check.job("measure", case.name, **wait)))
        case, job = started.pop(0)
        job.go()
        found = list(job.rows(end - time.monotonic()))
        rows.keep(found[-1] | {"name": case.name})
        if time.monotonic() > end:
            break
    for case, job in started:
        job.stop()
        rows.keep({"name": case.name, "error": NO_TIME})
    for case in waiting:
        rows.keep({"name": case.name, "error": NO_TIME})


def exact(check: Check, rows: Rows, end: float) -> None:
    keep_all(check.job("exact"), rows, end)


def half(check: Check, rows: Rows, end: float) -> None:
    keep_all(check.job("half", "120" if check.has_card else "10"), rows, end)


def speed(check: Check, rows: Rows, end: float) -> None:
    _, environment = asked(check, "speed")
    earlier = sorted((check.work / "cap").glob("*/plan.json"))[-1:]
    keep_all(check.job("speed", check.scale.budget, *map(str, earlier), **environment), rows, end)


def keep_all(job: Job, rows: Rows, end: float) -> None:
    for row in job.rows(end - time.monotonic()):
        rows.keep(row)


WHOLE = ("context", "exact", "half", "speed")  # one process each; the others go on from row to row
SECTIONS = {one.__name__: one for one in (forecast, context, cap, accuracy, exact, half, speed)}


def main() -> int:
    options = read_options()
    options.out.mkdir(parents=True, exist_ok=True)
    scale = TINY if options.cpu else FULL
    device = CPU if options.cpu else find_device(options.plan_only) if options.plan_only else None
    names = ["forecast"] if options.plan_only else options.only or list(SECTIONS)
    with tempfile.TemporaryDirectory(prefix="device-check-", dir=options.work) as folder:
        check = Check(scale, device, options.out, Path(folder), names, options.seconds)
        check.look()
        start = time.monotonic()
        make_world(check.work, scale, with_weights=not options.plan_only)
        tell(f"models and texts made in {time.monotonic() - start:.0f} s")
        for name in names:
            start = time.monotonic()
            rows = Rows(options.out, name)
            is_over = name in WHOLE and rows.is_done
            if time.monotonic() > check.end:
                rows.keep({"name": name, "error": NO_TIME})
            elif not is_over:
                limit = options.seconds if options.plan_only else LIMITS[name]
                SECTIONS[name](check, rows, time.monotonic() + check.left(limit))
            tell(f"{name}: {len(rows.rows)} rows after {time.monotonic() - start:.0f} s")
            write_report(options.out, check.device, check.facts)
    tell(f"see {options.out / 'device_check.md'}")
    return int(any("error" in row for name in names for row in Rows(options.out, name).found.values()))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="in small, without a card")
    parser.add_argument("--plan-only", metavar="CARD", help="the forecasts alone, for a card of the table")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections")
    parser.add_argument("--seconds", type=float, default=460, help="for all sections together")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "runs" / "device_check"))
    parser.add_argument("--work", type=Path, help="where models lie meanwhile: some 5 GB")
    return parser.parse_args()


def tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
