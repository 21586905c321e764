"""Cards that a run can be forecast for, without one: memory and compute capability, from NVIDIA's data sheets."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from launcher.errors import RecipeError
from launcher.units import GIB, parse_bytes


@dataclass(frozen=True)
class Device:
    """`memory` in bytes, of which some is not to be had; `capability` None is the CPU."""

    name: str
    memory: int | None
    capability: tuple[int, int] | None

    @property
    def kind(self) -> str:
        return "cpu" if self.capability is None else "cuda"


CPU = Device("CPU", None, None)
_CARDS = [
    Device(name, memory * GIB, capability)
    for name, memory, capability in [
        ("GTX 1060", 6, (6, 1)),
        ("GTX 1070", 8, (6, 1)),
        ("GTX 1080", 8, (6, 1)),
        ("GTX 1080 Ti", 11, (6, 1)),
        ("GTX 1650", 4, (7, 5)),
        ("GTX 1660", 6, (7, 5)),
        ("RTX 2060", 6, (7, 5)),
        ("RTX 2070", 8, (7, 5)),
        ("RTX 2080 Ti", 11, (7, 5)),
        ("RTX 3050", 8, (8, 6)),
        ("RTX 3060", 12, (8, 6)),
        ("RTX 3070", 8, (8, 6)),
        ("RTX 3080", 10, (8, 6)),
        ("RTX 3090", 24, (8, 6)),
        ("RTX 4060", 8, (8, 9)),
        ("RTX 4070", 12, (8, 9)),
        ("RTX 4080", 16, (8, 9)),
        ("RTX 4090", 24, (8, 9)),
        ("RTX 5090", 32, (12, 0)),
        ("T4", 16, (7, 5)),
        ("P100", 16, (6, 0)),
        ("V100", 16, (7, 0)),
        ("A10", 24, (8, 6)),
        ("A30", 24, (8, 0)),
        ("A40", 48, (8, 6)),
        ("A100", 40, (8, 0)),
        ("L4", 24, (8, 9)),
        ("L40S", 48, (8, 9)),
        ("H100", 80, (9, 0)),
        ("H200", 141, (9, 0)),
        ("B200", 180, (10, 0)),
    ]
]


def find_device(text: str) -> Device:
    """`"GTX 1650"`, `"A100 80GB"`, `"cpu"`; RecipeError with the nearest names for what is not in the table."""
    if text.strip().lower() == "cpu":
        return CPU
    known = {_plain(card.name): card for card in _CARDS}
    words = text.split()
    memory: int | None = None
    if len(words) > 1 and words[-1][0].isdigit() and words[-1].lower().endswith("gb"):
        try:
            memory = parse_bytes(words.pop())
        except ValueError as error:
            raise RecipeError("--device", [str(error)]) from None
    card = known.get(_plain(" ".join(words)))
    if card is None:
        near = difflib.get_close_matches(_plain(text), list(known), n=3, cutoff=0.4)
        names = ", ".join(known[name].name for name in near) or ", ".join(card.name for card in _CARDS)
        raise RecipeError("--device", [f"{text!r} is not in the table of cards; there are cpu, {names}"])
    return Device(card.name, memory or card.memory, card.capability)


def _plain(name: str) -> str:
    """Letters and digits only: "RTX-3090", "rtx3090" and "GeForce RTX 3090" are one card."""
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    for prefix in ("nvidia", "geforce", "tesla"):
        plain = plain.removeprefix(prefix)
    return plain
