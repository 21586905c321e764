"""The part of bench/device_check.py's jobs that looks at the card itself: context, limits, kernels, exact updates."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from device_cases import job_of
from device_speed import HAS_CARD, fresh_start, say
from torch import nn

from launcher.build import build_session
from launcher.errors import LauncherError
from launcher.load import load_parts
from launcher.offloaded_adamw import OffloadedAdamW
from launcher.plan import make_plan
from launcher.processes import start_form
from launcher.train import rehearse, train_update
from launcher.units import GIB, MIB

WIDTH, LENGTH, TEXTS = 1024, 128, 8  # of the layer that wakes libraries up
STEPS = 5  # of two optimizers that must stay equal
ENDS = 5  # updates at either end whose losses are compared


def context(folder: Path) -> None:
    """What another process takes of the card besides what torch reserves, step by step; this one only looks."""
    total = torch.cuda.mem_get_info()[1]
    before = torch.cuda.mem_get_info()[0]
    command = [sys.executable, str(Path(__file__).with_name("device_jobs.py")), "awaken", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for line in other.stdout:
            seen = json.loads(line)
            taken = before - torch.cuda.mem_get_info()[0]
            say(name=seen["step"], context=taken - seen["reserved"], **seen)
            other.stdin.write("\n")
            other.stdin.flush()
    say(name="card", total=total, before=before)
    for row in (*_attention_kernels(), _limit(), _pinned()):
        say(**row)


def awaken(folder: Path) -> None:
    """One library after the other; waits after each until somebody has looked."""
    for name, wake in _wakers().items():
        try:
            wake()
            torch.cuda.synchronize()
            failed = None
        except Exception as error:  # whatever a library raises is this row's answer, and others follow
            failed = f"{type(error).__name__}: {error}"
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        say(step=name, reserved=reserved, allocated=allocated, failed=failed)
        sys.stdin.readline()


def _wakers() -> dict[str, Callable[[], Any]]:
    layer = nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True)
    kept: list[Any] = []

    def train(dtype: torch.dtype | None) -> None:
        inputs = torch.randn(TEXTS, LENGTH, WIDTH, device="cuda")
        with torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None):
            loss = layer(inputs).float().square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)

    def update(make: Callable[..., Any]) -> None:
        kept.append(make(layer.parameters(), lr=1e-4))
        kept[-1].step()

    def eight_bit(*arguments: Any, **options: Any) -> Any:
        from bitsandbytes.optim import AdamW8bit

        return AdamW8bit(*arguments, **options)

    return {
        "a tensor": lambda: kept.append(torch.zeros(1, device="cuda")),
        "weights": lambda: layer.cuda(),
        "matrix products, forward": lambda: layer(torch.randn(TEXTS, LENGTH, WIDTH, device="cuda")),
        "a step in float32": lambda: train(None),
        "a step in bf16": lambda: train(torch.bfloat16),
        "a step in fp16": lambda: train(torch.float16),
        "fused AdamW": lambda: update(lambda p, lr: torch.optim.AdamW(p, lr=lr, fused=True)),
        "8-bit AdamW": lambda: update(eight_bit),
        "offloaded AdamW": lambda: update(OffloadedAdamW),
        "without cuBLAS workspaces": torch._C._cuda_clearCublasWorkspaces,
    }


def _attention_kernels() -> Iterator[dict[str, Any]]:
    """Which attention torch takes here: launcher/forecast/cuda_rules.py knows the efficient and the flash one."""
    from torch.nn.attention import SDPBackend

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        query = torch.zeros(2, 12, LENGTH, 64, device="cuda", dtype=dtype, requires_grad=True)
        mask = torch.ones(2, 1, LENGTH, LENGTH, device="cuda", dtype=torch.bool)
        for words, some in (("with a mask", mask), ("without", None)):
            chosen = torch._fused_sdp_choice(query, query, query, some, 0.1)
            yield {"name": f"attention in {dtype}, {words}", "kernel": SDPBackend(chosen).name}


def _limit() -> dict[str, Any]:
    """Whether torch keeps to a fraction, with the error that the launcher waits for."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(GIB / total)
    try:
        torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return {"name": "limit", "kept": True, "says": str(error).splitlines()[0]}
    return {"name": "limit", "kept": False}


def _pinned() -> dict[str, Any]:
    """Pinned memory is to be had, and copies from it are really asynchronous."""
    host = torch.zeros(256 * MIB, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    target.copy_(host, non_blocking=True)
    start.record()
    target.copy_(host, non_blocking=True)
    end.record()
    waited = not end.query()
    torch.cuda.synchronize()
    return {"name": "pinned", "asynchronous": waited, "link": 256 * MIB / (start.elapsed_time(end) / 1000)}


def exact(folder: Path) -> None:
    """OffloadedAdamW beside torch's fused AdamW: weights and states, bit for bit."""
    device = "cuda" if HAS_CARD else "cpu"
    large = [(30522, 1024), (4096, 1024), (1024, 1024)] if HAS_CARD else [(600, 64), (128, 64)]
    shapes = [*large, (7, 9), (1000, 3), (1024,), (129,), (1,)]
    for words, options in {"its own chunks": {}, "chunks of 1 MiB": {"chunk_bytes": MIB}}.items():
        torch.manual_seed(0)
        first = [torch.randn(shape, device=device).requires_grad_() for shape in shapes]
        second = [p.detach().clone().requires_grad_() for p in first]
        plain = torch.optim.AdamW(first, lr=1e-2, fused=True)
        offloaded = OffloadedAdamW(second, lr=1e-2, **options)
        for _ in range(STEPS):
            for p, q in zip(first, second, strict=True):
                p.grad = torch.randn_like(p) * 10 ** torch.empty_like(p).uniform_(-6, 1)
                q.grad = p.grad.clone()
            plain.step()
            offloaded.step()
        different = sum(not torch.equal(p, q) for p, q in zip(first, second, strict=True))
        for p, q in zip(first, second, strict=True):
            states = plain.state[p], offloaded.state[q]
            different += sum(not torch.equal(states[0][name].cpu(), states[1][name].cpu()) for name in states[0])
        pinned = all(offloaded.state[q]["exp_avg"].is_pinned() for q in second) if HAS_CARD else None
        say(name=words, tensors=len(shapes), steps=STEPS, different=different, pinned=pinned)


def half(folder: Path, updates: str) -> None:
    """A small model learns in every precision and with every optimizer; a rehearsal leaves no trace."""
    ways = {"float32": []} | {name: [f"strategies.mixed_precision.precision={name}"] for name in ("bf16", "fp16")}
    for strategy in ("optimizer_offload", "eight_bit_optimizer", "adafactor"):
        ways[f"fp16, {strategy}"] = [*ways["fp16"], f"strategies.{strategy}=true"]
    for name, overrides in ways.items():
        try:
            plan = make_plan(job_of(folder, "half", (*overrides, f"training.updates={updates}")))
        except LauncherError as error:
            say(name=name, skipped=error.problems[0])
            continue
        fresh_start()
        session = build_session(plan, start_form(plan), load_parts(plan))
        session.set_train_mode()
        losses, skipped = [], 0
        for number, indices in enumerate(session.sampler.updates(0, session.total_updates)):
            result = train_update(session, session.cutter.cut(indices))
            losses.append(float(result.loss))
            skipped += result.skipped
            if number == 0:
                rehearse(session)
        first, last = sum(losses[:ENDS]) / ENDS, sum(losses[-ENDS:]) / ENDS
        finite = all(math.isfinite(loss) for loss in losses)
        say(name=name, first=first, last=last, learns=finite and last < first, skipped=skipped, finite=finite)


def hog(folder: Path, left: str) -> None:
    """Takes all of the card but so many bytes, until its input ends."""
    held = torch.empty(max(0, torch.cuda.mem_get_info()[0] - int(left)), dtype=torch.uint8, device="cuda")
    say(name="hog", holds=held.numel())
    sys.stdin.read()


CARD_JOBS: dict[str, Callable[..., None]] = {
    "context": context,
    "awaken": awaken,
    "exact": exact,
    "half": half,
    "hog": hog,
}
