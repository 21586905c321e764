"""The forecast's own process: a request as JSON in, an answer or the problems as the last line out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from launcher.check import check
from launcher.devices import Device
from launcher.errors import BudgetError, LauncherError
from launcher.forecast.trace import trace


def main(text: str) -> None:
    request = json.loads(text)
    try:
        answer: dict[str, Any] = {"answer": ANSWERS[request["what"]](request)}
    except LauncherError as error:
        answer = error.as_json()
    print(json.dumps(answer))


def _forecast(request: dict[str, Any]) -> dict[str, Any]:
    device = Device.from_json(request["device"])
    job = check(Path(request["recipe"]), request["overrides"], processes=request["processes"], target=device)
    return trace(job, device).as_json()


def _plan(request: dict[str, Any]) -> list[dict[str, Any]]:
    """One answer per (device, budget), an error where nothing fits."""
    from launcher.planner.ground import Ground, stand_on
    from launcher.planner.propose import propose

    answers: list[dict[str, Any]] = []
    grounds: dict[Device, Ground] = {}  # two cards of one name may differ in memory and rates
    for asked, budget in request["targets"]:
        device = Device.from_json(asked)
        if device not in grounds:
            worlds = {"processes": request["processes"], "nodes": request["nodes"]}
            job = check(Path(request["recipe"]), request["overrides"], **worlds, target=device)
            grounds[device] = stand_on(job, device)
        try:
            answers.append(propose(grounds[device], budget).as_json())
        except BudgetError as error:
            answers.append(error.as_json())
    return answers


ANSWERS = {"forecast": _forecast, "plan": _plan}

if __name__ == "__main__":
    main(sys.argv[1])
