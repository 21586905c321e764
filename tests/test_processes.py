"""Which worlds of processes are refused before anything is loaded."""

from __future__ import annotations

import pytest

from launcher.processes import world_problems

CPU_WORDS = "to train on CPUs start it with `launcher run RECIPE --processes N` or accelerate_configs/cpu.yaml"
TWO = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
ALONE = "several processes were asked for (MASTER_ADDR is set), accelerate started one"
NO_GPU = "2 processes were started for GPUs, and torch sees none here"


@pytest.mark.parametrize(
    ("environ", "gpus", "form", "problem"),
    [
        ({}, 0, "ddp", None),
        ({}, 4, "ddp", None),
        ({"ACCELERATE_MIXED_PRECISION": "no"}, 1, "ddp", None),
        (TWO | {"MASTER_ADDR": "127.0.0.1", "ACCELERATE_MIXED_PRECISION": "no"}, 2, "zero", None),
        (TWO | {"ACCELERATE_USE_CPU": "true"}, 0, "ddp", None),
        (TWO | {"CUDA_VISIBLE_DEVICES": "-1,-1"}, 0, "fsdp", None),
        (TWO | {"CUDA_VISIBLE_DEVICES": ""}, 0, "ddp", None),
        # Two machines with two GPUs each.
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, 2, "ddp", None),
        ({"MASTER_ADDR": "127.0.0.1", "ACCELERATE_MIXED_PRECISION": "no"}, 1, "ddp", f"{ALONE}; {CPU_WORDS}, for GPUs"),
        (TWO, 0, "ddp", f"{NO_GPU}; {CPU_WORDS}"),
        (TWO | {"CUDA_VISIBLE_DEVICES": "0,1"}, 0, "zero", f"{NO_GPU}; {CPU_WORDS}"),
        (TWO, 1, "ddp", "2 processes were started on this machine, torch sees 1 GPU; num_processes is the number over"),
        ({"ACCELERATE_USE_CPU": "True"}, 1, "zero", "accelerate's configuration says CPU, strategies.zero would train"),
        ({"ACCELERATE_USE_CPU": "True"}, 1, "ddp", None),
    ],
)
def test_worlds_that_would_train_apart_or_on_another_device_are_told(environ, gpus, form, problem):
    found = world_problems(environ, gpus, form)
    if problem is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith(problem)
