"""Starting several processes through Accelerate's own launch command, with its failures told as exit codes."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from launcher.errors import LaunchError
from launcher.hand_over import expect, take_over
from launcher.units import count


def default_processes() -> int:
    """One per GPU that torch sees, one without GPUs."""
    return max(1, _gpus())


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()  # asks the driver, and takes no memory on a card


def start_processes(recipe: Path, overrides: list[str], processes: int) -> int:
    """Runs launcher/run.py on `processes` of this machine's devices; returns the exit code of the first that failed.

    LaunchError where there are fewer GPUs; MemoryExceededError where one of them ran out of memory.
    """
    from accelerate.commands.launch import launch_command_parser

    gpus = _gpus()
    if gpus and processes > gpus:
        raise LaunchError("launch", [f"{processes} processes on {count(gpus, 'GPU')}; write --processes {gpus}"])
    script = str(Path(__file__).with_name("run.py"))
    options = ["--multi_gpu", "--num_processes", str(processes), "--num_machines", "1", "--main_process_port", "0"]
    options += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    if not gpus:
        # With this and a GPU launcher Accelerate joins CPU processes by gloo; its own CPU launcher starts only one.
        os.environ["ACCELERATE_USE_CPU"] = "true"
    arguments = launch_command_parser().parse_args([*options, script, str(recipe), *overrides])
    with TemporaryDirectory() as folder:
        expect(Path(folder) / "out_of_memory.json")
        code = _launched(arguments)
        error = take_over(Path(folder) / "out_of_memory.json")
    if error is not None:
        raise error
    return code


def _launched(arguments: argparse.Namespace) -> int:
    from accelerate.commands.launch import launch_command
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        launch_command(arguments)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    except ChildFailedError as error:
        return exit_code(int(error.get_first_failure()[1].exitcode))
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0


def exit_code(of_process: int) -> int:
    """-9 of a process that was killed -> 137, as shells count."""
    return of_process if of_process >= 0 else 128 - of_process
