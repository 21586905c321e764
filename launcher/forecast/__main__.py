"""The forecast's own process: a request as JSON in, a forecast or its problems as the last line out."""

import json
import sys
from pathlib import Path

from launcher.check import check
from launcher.devices import Device
from launcher.errors import LauncherError
from launcher.forecast.trace import trace


def main(request: str) -> None:
    asked = json.loads(request)
    try:
        job = check(Path(asked["recipe"]), asked["overrides"])
        answer = trace(job, Device.from_json(asked["device"])).as_json()
    except LauncherError as error:
        answer = {"kind": type(error).__name__, "where": error.where, "problems": error.problems}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
