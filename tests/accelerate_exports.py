"""What `accelerate launch` hands to its processes, by Accelerate's own code and without starting any."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml


def launch_arguments(config: Path, *flags: str) -> argparse.Namespace:
    """Flags and YAML as Accelerate has put them together."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    parsed = launch_command_parser().parse_args(["--config_file", str(config), *flags, "launcher/run.py", "r.yaml"])
    return _validate_launch_command(parsed)[0]


def exported(folder: Path, **content: Any) -> dict[str, str]:
    """The environment that a configuration of two processes leads to."""
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    topology = {"distributed_type": "MULTI_GPU", "num_machines": 1, "num_processes": 2, "main_process_port": 0}
    path = folder / "accelerate.yaml"
    path.write_text(yaml.safe_dump(topology | content), encoding="utf-8")
    arguments = launch_arguments(path)
    if not arguments.use_deepspeed:
        return prepare_multi_gpu_env(arguments)
    fields = [*content.get("deepspeed_config", {}), *(["mixed_precision"] if "mixed_precision" in content else [])]
    arguments.deepspeed_fields_from_accelerate_config = ",".join(fields)
    return prepare_deepspeed_cmd_env(arguments)[1]
