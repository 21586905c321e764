"""Bytes and durations: read as people write them, print as people read them."""

import re

KIB, MIB, GIB = 2**10, 2**20, 2**30

# A card sold as "4 GB" holds 4 GiB: memory sizes are binary whichever way they are spelled.
_FACTORS = {"b": 1, "kb": KIB, "kib": KIB, "mb": MIB, "mib": MIB, "gb": GIB, "gib": GIB, "tb": 2**40, "tib": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]+)\s*")


def parse_bytes(text: str) -> int:
    """`"4GB"`, `"3.5 GiB"`, `"900 MB"` -> bytes; ValueError where the text is not a size above zero."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _FACTORS:
        raise ValueError(f"{text!r} is not a memory size such as 4GB or 900MB")
    size = int(float(match[1]) * _FACTORS[match[2].lower()])
    if size <= 0:
        raise ValueError(f"{text!r} is not a memory size above zero")
    return size


def format_bytes(size: int) -> str:
    """3972844749 -> `"3.7 GiB"`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def write_bytes(size: int) -> str:
    """4294967296 -> `"4GB"`, exactly, so that parse_bytes reads the same number."""
    for unit, name in ((GIB, "GB"), (MIB, "MB"), (KIB, "KB")):
        if size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"


def format_seconds(seconds: float) -> str:
    """4.21 -> `"4.2 s"`, 259 -> `"4 min 19 s"`, 7300 -> `"2 h 02 min"`."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """(1, "text") -> `"1 text"`, (2225, "text") -> `"2,225 texts"`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def share(part: float, whole: float) -> str:
    """(3, 8) -> `"37.5 %"`."""
    return f"{100 * part / whole:.1f} %" if whole else "0.0 %"
