"""What `accelerate launch` starts: `accelerate launch launcher/run.py RECIPE [KEY=VALUE]...`."""

import sys
from pathlib import Path

# Started as a file, Python puts launcher/ itself first on the path: `import launcher` would fail, and a module here
# could stand in for a library's. Its parent belongs there. Spawned workers import this file again and find it done.
if not __package__:
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [str(Path(here).parent) if str(Path(entry).resolve()) == here else entry for entry in sys.path]

from launcher.cli import worker

if __name__ == "__main__":
    sys.exit(worker(sys.argv[1:]))
