"""The configurations that are shipped, a person's own beside the recipe, and two machines: started by hand, as told."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from launcher.check import check
from launcher.deepspeed_config import deepspeed_config
from launcher.plan import make_plan
from tests.accelerate_exports import launch_arguments
from tests.launches.commands import ACCELERATE, LIMIT_SECONDS, ROOT, RUN, clean_environment, start

pytestmark = pytest.mark.launch
CONFIGS = ROOT / "accelerate_configs"
UPDATES = 3
# As long as it stands in the environment, Accelerate's GPU launcher starts processes on a machine without GPUs.
ON_CPU = {"ACCELERATE_USE_CPU": "true"}


class Workshop:
    """One recipe, by which all are trained, and a folder for each run."""

    def __init__(self, folder, tiny_model, rows_file):
        self.folder = folder
        content = {
            "name": "tiny",
            "model": {
                "source": str(tiny_model),
                "config": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
            },
            "task": {"type": "sequence_classification"},
            "data": {"train": str(rows_file)},
            "training": {"batch_size": 24, "updates": UPDATES, "learning_rate": 1e-3},
            "strategies": {"gradient_accumulation": {"steps": 3}, "uniform_dynamic_padding": True},
        }
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text(yaml.safe_dump(content), encoding="utf-8")

    def run(self, name):
        return self.folder / name / "tiny"

    def launch(self, name, config, *flags, overrides=(), **environment):
        """`accelerate launch --config_file CONFIG launcher/run.py RECIPE`, into a folder of that name."""
        command = [*ACCELERATE, "--config_file", str(config), *flags, RUN, str(self.recipe), *overrides]
        return start([*command, f"output.folder={self.folder / name}"], cwd=ROOT, **environment)

    def configuration(self, **content):
        path = self.folder / "accelerate.yaml"
        topology = {"num_machines": 1, "num_processes": 2, "main_process_port": 0}
        path.write_text(yaml.safe_dump(topology | content), encoding="utf-8")
        return path


@pytest.fixture(scope="module")
def workshop(tmp_path_factory, tiny_model, rows_file):
    return Workshop(tmp_path_factory.mktemp("configs"), tiny_model, rows_file)


@pytest.fixture(scope="module")
def alone(workshop):
    """The weights of one process, started by one_gpu.yaml, which does without a GPU too."""
    done = workshop.launch("one", CONFIGS / "one_gpu.yaml")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "on 1 CPU process:" in done.stdout
    return weights_of(workshop.run("one"))


def weights_of(run):
    return load_file(run / "model" / "model.safetensors")


def distance(some, others):
    """Of all parameters, relative."""
    assert set(some) == set(others)
    difference = torch.cat([(some[name] - others[name]).flatten().double() for name in others])
    return float(difference.norm() / torch.cat([one.flatten().double() for one in others.values()]).norm())


# Adam divides by the gradient's size, which lifts rounding in gradients near zero to the learning rate.
TOLERANCE = 1e-4


@pytest.mark.parametrize("path", sorted(CONFIGS.iterdir()), ids=lambda path: path.stem)
def test_shipped_configurations_hold_topology_alone(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    topology = {"compute_environment", "distributed_type", "gpu_ids", "machine_rank", "main_process_ip"}
    topology |= {"main_process_port", "num_machines", "num_processes", "rdzv_backend", "use_cpu"}
    assert set(content) <= topology
    assert path.read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        (
            "one_gpu",
            [],
            {"multi_gpu": False, "use_cpu": False, "num_processes": 1, "num_machines": 1, "gpu_ids": "all"},
        ),
        ("many_gpus", [], {"multi_gpu": True, "use_cpu": False, "num_processes": 2, "gpu_ids": "all"}),
        ("many_gpus", ["--num_processes", "8", "--gpu_ids", "0,2"], {"num_processes": 8, "gpu_ids": "0,2"}),
        ("many_nodes", [], {"multi_gpu": True, "num_machines": 2, "num_processes": 4, "machine_rank": 0}),
        ("many_nodes", ["--machine_rank", "1", "--main_process_ip", "10.0.0.1"], {"main_process_ip": "10.0.0.1"}),
        ("cpu", [], {"multi_gpu": True, "cpu": False, "use_cpu": True, "num_processes": 2, "gpu_ids": "-1,-1"}),
    ],
)
def test_accelerate_reads_shipped_configurations_as_they_are_meant(name, flags, expected):
    read = vars(launch_arguments(CONFIGS / f"{name}.yaml", *flags))
    assert {key: read[key] for key in expected} == expected
    assert (read["mixed_precision"], read["dynamo_backend"]) == ("no", "no")
    assert (read["use_deepspeed"], read["use_fsdp"]) == (False, False)


def test_many_nodes_leads_every_machine_to_the_same_place(monkeypatch):
    """With its own rank and its share of the processes."""
    from accelerate.utils import launch

    monkeypatch.setattr(launch, "is_port_in_use", lambda port: False)
    flags = ["--main_process_ip", "10.0.0.1", "--main_process_port", "4711", "--num_processes", "8"]
    for rank in ("0", "1"):
        arguments = launch_arguments(CONFIGS / "many_nodes.yaml", *flags, "--machine_rank", rank)
        launch.prepare_multi_gpu_env(arguments)
        assert (arguments.nnodes, arguments.nproc_per_node, arguments.node_rank) == ("2", "4", int(rank))
        assert (arguments.rdzv_endpoint, arguments.rdzv_backend) == ("10.0.0.1:4711", "static")


def test_processes_of_the_cpu_configuration_train_one_model(workshop, alone):
    done = workshop.launch("cpu", CONFIGS / "cpu.yaml")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "on 2 CPU processes:" in done.stdout
    assert distance(weights_of(workshop.run("cpu")), alone) < TOLERANCE


def test_many_gpus_on_a_machine_without_gpus_says_so_once(workshop):
    done = workshop.launch("none", CONFIGS / "many_gpus.yaml")
    assert done.returncode != 0
    assert done.stderr.count("2 processes were started for GPUs, and torch sees none here; to train on CPUs start") == 1
    assert "exitcode  : 2 " in done.stderr
    assert not workshop.run("none").exists()


# A person's own configuration


def resolved(recipe, overrides):
    """What DeepSpeed should get on two processes."""
    plan = make_plan(check(recipe, overrides, processes=2))
    return deepspeed_config(plan.recipe, plan.settings, plan.processes)[0]


def test_a_configuration_that_says_what_the_recipe_says_trains_by_zero(workshop, alone):
    said = {"zero_stage": 2, "gradient_accumulation_steps": 3, "gradient_clipping": 1.0, "zero3_init_flag": False}
    said |= {"offload_optimizer_device": "none", "offload_param_device": "none"}
    config = workshop.configuration(distributed_type="DEEPSPEED", deepspeed_config=said, mixed_precision="no")
    overrides = ["strategies.zero.stage=2"]
    done = workshop.launch("deepspeed", config, overrides=overrides, **ON_CPU)
    assert done.returncode == 0, done.stderr[-3000:]
    run = workshop.run("deepspeed")
    assert distance(weights_of(run), alone) < TOLERANCE
    assert json.loads((run / "ds_config.json").read_text()) == resolved(workshop.recipe, overrides)


def test_a_configuration_that_says_what_the_recipe_says_trains_by_fsdp(workshop, alone):
    said = {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_offload_params": False}
    said |= {"fsdp_transformer_layer_cls_to_wrap": "BertLayer", "fsdp_state_dict_type": "SHARDED_STATE_DICT"}
    config = workshop.configuration(distributed_type="FSDP", fsdp_config=said)
    done = workshop.launch("fsdp", config, overrides=["strategies.fsdp=true"], **ON_CPU)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("fsdp_state_dict_type: SHARDED_STATE_DICT has no effect: models are saved whole") == 1
    assert distance(weights_of(workshop.run("fsdp")), alone) < TOLERANCE


def test_a_configuration_that_contradicts_the_recipe_is_told_once_with_both_values(workshop):
    said = {"zero_stage": 3, "gradient_accumulation_steps": 1, "zero3_init_flag": True}
    config = workshop.configuration(distributed_type="DEEPSPEED", deepspeed_config=said, mixed_precision="bf16")
    done = workshop.launch("against", config, overrides=["strategies.zero.stage=2"], **ON_CPU)
    message = (
        "launch: 3 problems\n"
        "  mixed_precision is bf16 by accelerate's configuration, and no by the recipe"
        " (strategies.mixed_precision.precision)\n"
        "  gradient_accumulation_steps is 1 by accelerate's configuration, and 3 by the recipe"
        " (strategies.gradient_accumulation)\n"
        "  zero_stage is 3 by accelerate's configuration, and 2 by the recipe (strategies.zero.stage)\n"
    )
    assert done.stderr.count(message) == 1
    assert "exitcode  : 2 " in done.stderr
    assert not workshop.run("against").exists()


def test_a_flag_that_contradicts_the_recipe_is_told(workshop):
    done = workshop.launch("flag", CONFIGS / "one_gpu.yaml", "--mixed_precision", "bf16")
    assert done.stderr.count("mixed_precision is bf16 by accelerate's configuration, and no by the recipe") == 1
    assert "returned non-zero exit status 2" in done.stderr
    assert not workshop.run("flag").exists()


# Two machines


def launch_two_machines(processes, *job):
    """The same command on both, but for the rank; their output."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*ACCELERATE, "--config_file", str(CONFIGS / "many_nodes.yaml"), "--num_processes", str(processes)]
    command += ["--main_process_ip", "127.0.0.1", "--main_process_port", str(port)]
    machines = [
        subprocess.Popen(
            [*command, "--machine_rank", str(rank), *job],
            cwd=ROOT,
            env=clean_environment(ROOT) | ON_CPU,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in (0, 1)
    ]
    outputs = [machine.communicate(timeout=LIMIT_SECONDS)[0] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], "\n".join(output[-3000:] for output in outputs)
    return outputs


def test_two_machines_train_as_one_process(workshop, alone):
    """Two processes on each, by the console command, which a launcher may start like the script."""
    job = ["-m", "launcher", "run", str(workshop.recipe), f"output.folder={workshop.folder / 'machines'}"]
    main, other = launch_two_machines(4, *job)
    assert "on 4 CPU processes:" in main
    assert "training 3/3" not in other
    assert distance(weights_of(workshop.run("machines")), alone) < TOLERANCE
    assert [run.name for run in (workshop.folder / "machines").iterdir()] == ["tiny"]


def test_two_machines_train_by_zero_and_fsdp_as_one_process(workshop, alone):
    """One process on each; both forms in one launch."""
    folder = workshop.folder / "forms"
    folder.mkdir()
    content = yaml.safe_load(workshop.recipe.read_text(encoding="utf-8"))
    for name, strategies in {"zero_2": {"zero": {"stage": 2}}, "fsdp": {"fsdp": True}}.items():
        changed = content | {"strategies": content["strategies"] | strategies}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(changed), encoding="utf-8")
    launch_two_machines(2, str(Path(__file__).with_name("forms_job.py")), str(folder))
    answers = [json.loads((folder / f"answers-{rank}.json").read_text()) for rank in (0, 1)]
    assert answers[0] == answers[1]
    assert {name: answer["form"] for name, answer in answers[0].items()} == {"zero_2": "Zero", "fsdp": "Fsdp"}
    # As DeepSpeed itself has read it; what a run folder keeps is compared above.
    assert answers[0]["zero_2"]["deepspeed"] == resolved(workshop.recipe, ["strategies.zero.stage=2"])
    for name in ("zero_2", "fsdp"):
        assert distance(torch.load(folder / f"{name}.pt"), alone) < TOLERANCE
