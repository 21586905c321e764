"""A world of several processes of which only the first is here; what the others would send is never looked at."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from unittest.mock import patch

import torch
from torch import distributed, nn

from launcher.build import Session
from launcher.errors import ForecastError
from launcher.forms import Form, make_form
from launcher.plan import Plan

MESH = "torch.distributed.fsdp._fully_shard._fully_shard._init_default_mesh"
SHAPES = "torch.distributed.tensor._sharding_prop.ShardingPropagator._propagate_tensor_meta_non_cached"


class Pausing(Protocol):
    """What sees operators, and can look away."""

    is_paused: bool


@contextmanager
def fake_processes(plan: Plan, watchers: list[Pausing], *, on_card: bool) -> Iterator[None]:
    """Inside, forms start and train as the first of the plan's processes.

    ForecastError for shards in the host's memory: here host and card are one.
    """
    form = type(make_form(plan)).key
    if form == "ddp" and plan.processes == 1:
        yield
        return
    if plan.settings.form_options.get("offload") and (on_card or form == "zero"):
        raise ForecastError("forecast", [f"{form} with offload to the host's memory cannot be followed yet"])
    # Where a form would meet others by gloo, the group is there already.
    world = {"RANK": "0", "WORLD_SIZE": str(plan.processes), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    # Accelerate would set the threads of a CPU's processes where nobody has said their number.
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(torch.get_num_threads())}
    with ExitStack() as stack:
        told = world | threads | {"MASTER_PORT": "0", "ACCELERATE_USE_CPU": "true"}
        stack.enter_context(patch.dict(os.environ, told))
        _meet(plan.processes, stack)
        for name in ("_verify_param_shape_across_processes", "_sync_module_states"):
            stack.enter_context(patch(f"torch.nn.parallel.distributed.{name}", lambda *_, **__: None))
        if form == "fsdp":
            _follow_fsdp(plan.processes, watchers, stack)
        if form == "zero":
            _follow_zero(stack)
        yield


def _meet(processes: int, stack: ExitStack) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
    stack.callback(distributed.destroy_process_group)
    stack.enter_context(_forgetful_deepspeed())


@contextmanager
def _forgetful_deepspeed() -> Iterator[None]:
    """DeepSpeed keeps the groups that it has met, by name, for as long as a process lives, and transformers its config:
    the next model would be sharded as it is made.
    """
    from deepspeed.comm import comm
    from deepspeed.utils import groups
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    before = [(module, copy.copy(vars(module))) for module in (groups, comm)]
    try:
        yield
    finally:
        unset_hf_deepspeed_config()  # type: ignore[no-untyped-call]
        for module, content in before:
            vars(module).update(content)


def _follow_fsdp(processes: int, watchers: list[Pausing], stack: ExitStack) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    mesh = init_device_mesh("cpu", (processes,))  # on fake tensors it could not be read
    stack.enter_context(patch(MESH, lambda *_, **__: mesh))
    shapes_of: Callable[..., Any] = ShardingPropagator._propagate_tensor_meta_non_cached

    def unseen(*arguments: Any) -> Any:
        """torch finds out shapes by running operators on whole tensors that are fake in the real run too."""
        before = [watcher.is_paused for watcher in watchers]
        for watcher in watchers:
            watcher.is_paused = True
        try:
            return shapes_of(*arguments)
        finally:
            for watcher, was_paused in zip(watchers, before, strict=True):
                watcher.is_paused = was_paused

    stack.enter_context(patch(SHAPES, unseen))


def _follow_zero(stack: ExitStack) -> None:
    # The model is where it belongs; fake tensors cannot be moved in place.
    stack.enter_context(patch("torch.nn.Module.to", lambda module, *_, **__: module))
    # Stage 3 puts a linear product of its own in the place of torch's, and leaves it there.
    stack.enter_context(patch("torch.nn.functional.linear", nn.functional.linear))
    for stage in ("stage_1_and_2", "stage3"):
        # Of a gradient's size only whether it is a number decides what happens.
        stack.enter_context(patch(f"deepspeed.runtime.zero.{stage}.is_invalid_grad_norm", lambda _: False))


def before_wrapping(form: Form) -> None:
    """Every weight is here: there is no main process to read them from."""
    plugin = getattr(form.accelerator.state, "fsdp_plugin", None)
    if plugin is not None:
        plugin.cpu_ram_efficient_loading = False


def after_wrapping(session: Session) -> None:
    """DDP's gradients are averaged with themselves; its buckets are not ordered anew, which reads real numbers."""
    model = session.model
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model.register_comm_hook(None, _with_itself)
        model.reducer = _Reducer(model.reducer)  # type: ignore[assignment]


def _with_itself(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are words
    distributed.all_reduce(bucket.buffer())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class _Reducer:
    """DDP's own, in all but one."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def _rebuild_buckets(self) -> bool:
        return False
