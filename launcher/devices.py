"""What devices hold and how fast they are: cards that a run can be forecast for without one, and the CPU."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from launcher.errors import RecipeError
from launcher.units import GIB, parse_bytes

BF16_CAPABILITY = (8, 0)  # torch.cuda.is_bf16_supported() counts emulation; Ampere is the first to have the units
FP16_CAPABILITY = (5, 3)

# Seconds that one kernel takes at the least in eager training. Assumed: an empty kernel takes 2 to 5 us of the GPU, but
# the host needs about 10 us for an operator's Python, dispatch and autograd, and small kernels wait for it.
LAUNCH = 10e-6

# One CPU core, assumed: 32 float32 operations a cycle (two AVX2 multiply-adds of 8 lanes) at 3 GHz, of which the memory
# that all cores share leaves 10 GB/s to each. It ranks; it promises nothing.
CORE_FLOPS = 32 * 3e9
CORE_BANDWIDTH = 10e9
OPERATOR = 5e-6  # seconds that one operator takes at the least on a CPU, assumed: dispatcher and autograd


@dataclass(frozen=True)
class Device:
    """`memory` in bytes, of which some is not to be had; `capability` None is the CPU.

    Peak rates, of which a run reaches a part. `bandwidth`: bytes/s of its own memory. `float32`: FLOP/s of dense
    matrices without TF32, torch's default. `half`: FLOP/s of dense fp16 or bf16 matrices that are summed in float32,
    on tensor cores where there are any. `link`: bytes/s to and from the host. `launch`: seconds a kernel at the least.
    """

    name: str
    memory: int | None
    capability: tuple[int, int] | None
    bandwidth: float
    float32: float
    half: float
    link: float
    launch: float

    @property
    def kind(self) -> str:
        return "cpu" if self.capability is None else "cuda"

    @property
    def peer(self) -> float:
        """Bytes/s to another card of the same computer, in one direction: NVLink where the card's data sheet has it."""
        return next((rate for name, rate in NVLINK.items() if name in self.name), self.link)

    @property
    def has_bf16(self) -> bool:
        """CPUs run bf16 autocast everywhere; CUDA cards from capability 8.0."""
        return self.capability is None or self.capability >= BF16_CAPABILITY

    @property
    def has_fp16(self) -> bool:
        """GTX 16xx cards return NaN in half precision, and a CPU has no fp16 training at all."""
        return self.capability is not None and self.capability >= FP16_CAPABILITY and "GTX 16" not in self.name

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Device:
        """What dataclasses.asdict made, also after a way through JSON, which knows no tuples."""
        capability = content["capability"]
        return cls(**content | {"capability": tuple(capability) if capability else None})


def _cpu() -> Device:
    cores = os.cpu_count() or 1
    # bf16 without units of its own is no faster than float32; nothing needs to be carried to the host.
    flops, bandwidth = cores * CORE_FLOPS, cores * CORE_BANDWIDTH
    return Device("CPU", None, None, bandwidth, flops, flops, bandwidth, OPERATOR)


CPU = _cpu()

# What 16 lanes of a PCIe generation bring in one direction in practice, about 80 % of what they signal, bytes/s.
PCIE_3, PCIE_4, PCIE_5 = 12.5e9, 25e9, 50e9
PCIE_4_X8 = PCIE_4 / 2  # the small GeForce cards have 8 lanes

# Bytes/s in one direction, half of what the data sheets of the SXM modules say of both.
NVLINK = {"V100": 150e9, "A100": 300e9, "H100": 450e9, "H200": 450e9, "B200": 900e9}
# Bytes/s from one computer to the next, assumed: 100 Gbit/s.
NETWORK = 12.5e9

# Name, GiB, capability, memory GB/s, float32 TFLOP/s, half TFLOP/s, link. Boost clock, dense, sums in float32.
# Pascal: Tesla P100 PCIe data sheet; GeForce GTX 10 series specifications. Half is no faster than float32: its own
#   arithmetic sums in half (P100) or has 1/64 of the rate (GTX), so cuBLAS reads half and multiplies in float32.
# Volta: Tesla V100 SXM2 data sheet. Turing: Tesla T4 data sheet; NVIDIA Turing GPU Architecture whitepaper, reference
#   cards (GeForce tensor cores have half the rate when they sum in float32). GTX 16xx: NVIDIA's specifications; no
#   tensor cores, and half given float32's rate, because it is not to be used there.
# Ampere: A100, A10, A30 and A40 data sheets; NVIDIA Ampere GA102 whitepaper. Ada: L4 and L40S data sheets (half of the
#   figure with sparsity); NVIDIA Ada GPU Architecture whitepaper.
# Hopper: H100 (SXM) and H200 data sheets. Blackwell: RTX Blackwell GPU Architecture whitepaper; HGX B200 data sheet,
#   an eighth of the board.
_TABLE: list[tuple[str, int, tuple[int, int], float, float, float, float]] = [
    ("GTX 1060", 6, (6, 1), 192, 4.4, 4.4, PCIE_3),
    ("GTX 1070", 8, (6, 1), 256, 6.5, 6.5, PCIE_3),
    ("GTX 1080", 8, (6, 1), 320, 8.9, 8.9, PCIE_3),
    ("GTX 1080 Ti", 11, (6, 1), 484, 11.3, 11.3, PCIE_3),
    ("GTX 1650", 4, (7, 5), 128, 3.0, 3.0, PCIE_3),
    ("GTX 1650 Super", 4, (7, 5), 192, 4.4, 4.4, PCIE_3),
    ("GTX 1660", 6, (7, 5), 192, 5.0, 5.0, PCIE_3),
    ("RTX 2060", 6, (7, 5), 336, 6.5, 25.8, PCIE_3),
    ("RTX 2070", 8, (7, 5), 448, 7.5, 29.9, PCIE_3),
    ("RTX 2080 Ti", 11, (7, 5), 616, 13.4, 53.8, PCIE_3),
    ("RTX 3050", 8, (8, 6), 224, 9.1, 18.2, PCIE_4_X8),
    ("RTX 3060", 12, (8, 6), 360, 12.7, 25.5, PCIE_4),
    ("RTX 3070", 8, (8, 6), 448, 20.3, 40.6, PCIE_4),
    ("RTX 3080", 10, (8, 6), 760, 29.8, 59.5, PCIE_4),
    ("RTX 3090", 24, (8, 6), 936, 35.6, 71.0, PCIE_4),
    ("RTX 4060", 8, (8, 9), 272, 15.1, 30.2, PCIE_4_X8),
    ("RTX 4070", 12, (8, 9), 504, 29.1, 58.3, PCIE_4),
    ("RTX 4080", 16, (8, 9), 717, 48.7, 97.5, PCIE_4),
    ("RTX 4090", 24, (8, 9), 1008, 82.6, 165.2, PCIE_4),
    ("RTX 5090", 32, (12, 0), 1792, 104.8, 209.5, PCIE_5),
    ("T4", 16, (7, 5), 320, 8.1, 65.0, PCIE_3),
    ("P100", 16, (6, 0), 732, 9.3, 9.3, PCIE_3),
    ("V100", 16, (7, 0), 900, 15.7, 125.0, PCIE_3),
    ("A10", 24, (8, 6), 600, 31.2, 125.0, PCIE_4),
    ("A30", 24, (8, 0), 933, 10.3, 165.0, PCIE_4),
    ("A40", 48, (8, 6), 696, 37.4, 149.7, PCIE_4),
    ("A100", 40, (8, 0), 1555, 19.5, 312.0, PCIE_4),
    ("A100", 80, (8, 0), 2039, 19.5, 312.0, PCIE_4),
    ("L4", 24, (8, 9), 300, 30.3, 121.0, PCIE_4),
    ("L40S", 48, (8, 9), 864, 91.6, 362.0, PCIE_4),
    ("H100", 80, (9, 0), 3350, 67.0, 989.0, PCIE_5),
    ("H200", 141, (9, 0), 4800, 67.0, 989.0, PCIE_5),
    ("B200", 180, (10, 0), 7700, 75.0, 2250.0, PCIE_5),
]
_CARDS = [
    Device(name, memory * GIB, capability, bandwidth * 1e9, float32 * 1e12, half * 1e12, link, LAUNCH)
    for name, memory, capability, bandwidth, float32, half, link in _TABLE
]
_MEMORY = re.compile(r"(.*?)[\s_-]+([0-9][0-9.]*\s*gi?b)", re.IGNORECASE)


def find_device(text: str) -> Device:
    """`"GTX 1650"`, `"A100 80GB"`, `"A100-40GB"`, `"cpu"`; RecipeError with the nearest names for what is not known."""
    if text.strip().lower() == "cpu":
        return CPU
    name, memory = text.strip(), None
    if match := _MEMORY.fullmatch(name):
        try:
            name, memory = match[1], parse_bytes(match[2])
        except ValueError as error:
            raise RecipeError("--device", [str(error)]) from None
    same = list(_of_name(name))
    if not same:
        known = {_plain(card.name): card.name for card in _CARDS}
        near = difflib.get_close_matches(_plain(text), list(known), n=3, cutoff=0.4)
        names = ", ".join(known[name] for name in near) or ", ".join(known.values())
        raise RecipeError("--device", [f"{text!r} is not in the table of cards; there are cpu, {names}"])
    card = next((card for card in same if card.memory == memory), same[0])
    return replace(card, memory=memory or card.memory)


def generic_device(name: str, memory: int, capability: tuple[int, int]) -> Device:
    """A card that torch sees and the table does not know: its own name and memory, another's rates.

    Those of the card whose compute capability is nearest, among equals the one whose memory is. A guess by generation.
    """

    def distance(card: Device) -> tuple[int, int]:
        assert card.capability is not None
        assert card.memory is not None
        major, minor = card.capability
        return abs(10 * (major - capability[0]) + minor - capability[1]), abs(card.memory - memory)

    return replace(min(_CARDS, key=distance), name=name, memory=memory, capability=capability)


def this_card(name: str, memory: int, capability: tuple[int, int]) -> Device:
    """A card as torch sees it, with the table's rates for the longest of its names that this one begins with."""
    plain = _plain(name)
    known = [card for card in _CARDS if plain.startswith(_plain(card.name))]
    # "L40" is no L4: a digit more is another card.
    known = [card for card in known if not plain.removeprefix(_plain(card.name))[:1].isdigit()]
    if not known:
        return generic_device(name, memory, capability)
    longest = max(len(card.name) for card in known)
    near = min((c for c in known if len(c.name) == longest), key=lambda card: abs((card.memory or 0) - memory))
    return replace(near, name=name, memory=memory, capability=capability)


def _of_name(name: str) -> Iterator[Device]:
    return (card for card in _CARDS if _plain(card.name) == _plain(name))


def _plain(name: str) -> str:
    """Letters and digits only: "RTX-3090", "rtx3090" and "GeForce RTX 3090" are one card."""
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    for prefix in ("nvidia", "geforce", "tesla"):
        plain = plain.removeprefix(prefix)
    return plain
