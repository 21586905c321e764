"""Processes with a time limit, and the rows that they bring: for bench/device_check.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.records import write_json

ROOT = Path(__file__).resolve().parents[1]


class Rows:
    """A section's rows by name, in a file that is whole at every moment; what failed earlier is open still."""

    def __init__(self, out: Path, section: str) -> None:
        self.path = out / f"{section}.json"
        self._lock = threading.Lock()
        self.found: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            self.found = json.loads(self.path.read_text(encoding="utf-8"))
        self.rows = {name: row for name, row in self.found.items() if "error" not in row}
        self.is_done = bool(self.rows) and len(self.rows) == len(self.found)

    def is_open(self, name: str) -> bool:
        return name not in self.rows

    def keep(self, row: dict[str, Any]) -> None:
        with self._lock:
            self.rows[row.pop("name")] = row
            write_json(self.path, self.rows)


class Job:
    """A process in a session of its own, so that what it starts ends with it."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        defaults = {"PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "FRUGAL_LAUNCHER_CACHE": str(folder / "cache")}
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # stop() closes it
        self._process = subprocess.Popen(
            list(command),
            cwd=folder,
            env=os.environ | defaults | dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    @classmethod
    def of(cls, name: str, folder: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Job:
        """One of device_jobs.py."""
        script = str(ROOT / "bench" / "device_jobs.py")
        return cls(name, [sys.executable, script, name, str(folder), *arguments], folder, environment)

    def go(self) -> None:
        """It waits for its turn no longer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already; its rows say why
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def first_row(self) -> dict[str, Any]:
        """What it says first, while it goes on."""
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline() or "{}"))

    def rows(self, limit: float) -> Iterator[dict[str, Any]]:
        """As they come; the last is an error where the process failed or took longer than `limit` seconds."""
        assert self._process.stdout is not None
        timer = threading.Timer(max(1.0, limit), self._kill)
        timer.start()
        try:
            for line in self._process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            code = self._process.wait()
            was_late = not timer.is_alive()
            if code:
                reason = f"ended after {limit:.0f} s" if was_late else self._last_words(code)
                yield {"name": self.name, "error": reason}
        finally:
            timer.cancel()
            self.stop()

    def finish(self, limit: float) -> str | None:
        """What went wrong; None where nothing did."""
        for row in self.rows(limit):
            if row.get("name") == self.name and "error" in row:
                return str(row["error"])
        return None

    def stop(self) -> None:
        """Ends it where it has not ended; nothing of it can be asked any more."""
        self._kill()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _last_words(self, code: int) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip()]
        return f"exit code {code}: {' | '.join(lines[-2:])[-400:]}"
