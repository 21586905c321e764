"""Weights and optimizer states out of DeepSpeed's flat shards and into them, parameter by parameter.

By DeepSpeed's public functions on fragments. They find the states of a parameter's fragment only once they are linked
to it, and DeepSpeed does that after the step of the first group, before other groups have any (deepspeed 0.19.8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from launcher.errors import CheckpointError
from launcher.optimizer_states import COUNTERS

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from launcher.optimizer_states import State

# Adafactor finds it anew in each step before it reads it; of a shard it says nothing about a parameter.
DERIVED = ("RMS",)


def whole_weight(tensor: Tensor) -> Tensor:
    """Stages 1 and 2 hold it whole everywhere; what is trained is float32, and its master copy equal."""
    from deepspeed.runtime.zero import GatheredParameters

    if not hasattr(tensor, "ds_id"):
        return tensor.detach()
    with GatheredParameters([tensor]):
        return tensor.detach().to("cpu", copy=True)


def put_weight(tensor: Tensor, whole: Tensor, *, is_main: bool) -> None:
    """Into the model, and into the master copy that the optimizer steps, where there is one."""
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param

    if not hasattr(tensor, "ds_id"):
        tensor.detach().copy_(whole)
        safe_set_full_fp32_param(tensor, whole)
        return
    with GatheredParameters([tensor], modifier_rank=0):
        if is_main:
            tensor.detach().copy_(whole)
    safe_set_local_fp32_param(tensor, _own_part(tensor, whole))


def whole_state(optimizer: Any, parameter: Parameter) -> State:
    """`optimizer` is DeepSpeed's; the one that it steps by is inside."""
    import torch
    from deepspeed.utils import safe_get_full_optimizer_state

    flats, states = flat_parameters(optimizer), optimizer.optimizer.state
    found: State = {}
    _link(optimizer, parameter)
    for key, value in states.get(flats[0], {}).items():
        if isinstance(value, torch.Tensor) and value.shape == flats[0].shape:
            found[key] = safe_get_full_optimizer_state(parameter, key)
        elif key not in DERIVED:
            # Every step is of all: any of them knows the number.
            found[key] = value
    return found


def put_states(optimizer: Any, parameters: Mapping[str, Parameter], read: Callable[[str], State]) -> None:
    """CheckpointError where parameters have had different numbers of steps: DeepSpeed counts them for all at once."""
    counters: dict[str, dict[float, str]] = {}
    for name, parameter in parameters.items():
        state = read(name)
        cut = {key: value for key, value in state.items() if key not in COUNTERS}
        _make_room(optimizer, cut)
        for key, value in cut.items():
            _link(optimizer, parameter)
            _put_state(parameter, key, value)
        for key in state.keys() - cut.keys():
            counters.setdefault(key, {}).setdefault(float(state[key]), name)
            _put_counter(optimizer, key, state[key])
    uneven = [
        f"{key} is {' and '.join(f'{value:g} of {name}' for value, name in names.items())}; ZeRO keeps one for all"
        for key, names in counters.items()
        if len(names) > 1
    ]
    if uneven:
        raise CheckpointError("training state", uneven)


def flat_parameters(optimizer: Any) -> list[Tensor]:
    """What the optimizer steps on this process: every trained parameter's part lies in one of them."""
    if hasattr(optimizer, "fp32_partitioned_groups_flat"):
        return list(optimizer.fp32_partitioned_groups_flat)
    return list(optimizer.single_partition_of_fp32_groups)


def _make_room(optimizer: Any, keys: Mapping[str, object]) -> None:
    """Zeros for the states, as an optimizer makes them in its first step."""
    import torch

    states = optimizer.optimizer.state
    for flat in flat_parameters(optimizer):
        states[flat].update({key: torch.zeros_like(flat) for key in keys - states[flat].keys()})


def _link(optimizer: Any, parameter: Any) -> None:
    """Once for all parameters, if this one is not linked yet; stage 3 looks states up by itself."""
    from deepspeed.utils import lazy_init_hp_params_optimizer_state

    mapping = getattr(parameter, "_hp_mapping", None)
    if mapping is not None and not mapping.optim_fragment:
        for group, flat in zip(optimizer.bit16_groups, flat_parameters(optimizer), strict=True):
            lazy_init_hp_params_optimizer_state(group, flat, optimizer.optimizer.state)


def _put_state(parameter: Parameter, key: str, whole: Tensor | float) -> None:
    import torch
    from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

    assert isinstance(whole, torch.Tensor), f"{key} is a number that COUNTERS does not name"
    if hasattr(parameter, "ds_id"):
        safe_set_local_optimizer_state(parameter, _own_part(parameter, whole), key)
    else:
        safe_set_full_optimizer_state(parameter, whole, key)


def _put_counter(optimizer: Any, key: str, value: Tensor | float) -> None:
    import torch

    for flat in flat_parameters(optimizer):
        own = value.to(flat.device, copy=True) if isinstance(value, torch.Tensor) else value
        optimizer.optimizer.state[flat][key] = own


def _own_part(parameter: Any, whole: Tensor) -> Tensor:
    """Of stage 3, flat: all parts are of one size, the last ends in zeros."""
    import torch
    from deepspeed import comm

    size = parameter.partition_numel()
    start = size * comm.get_rank(group=parameter.ds_process_group)
    part = torch.zeros(size, dtype=whole.dtype)
    own = whole.flatten()[start : start + size]
    part[: own.numel()] = own
    return part
