import pytest

from launcher.units import count, format_bytes, format_seconds, parse_bytes, share


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GB", 4 * 2**30),
        ("4 gib", 4 * 2**30),  # a card sold as 4 GB holds 4 GiB
        ("3.5 GiB", 3758096384),
        (" 900 MB ", 900 * 2**20),
        ("1TB", 2**40),
        ("12 b", 12),
    ],
)
def test_sizes_are_binary_whichever_way_they_are_spelled(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "4", "GB", "4 gigs", "-4GB", "4GB free", "1e3 MB", "4,5GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a memory size such as 4GB or 900MB"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["0GB", "0.2 B"])
def test_a_size_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a memory size above zero"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (450 * 2**20, "450.0 MiB"), (3972844749, "3.7 GiB")],
)
def test_sizes_are_shown_in_the_largest_unit_that_they_fill(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (4.21, "4.2 s"),
        (60, "1 min 00 s"),
        (259, "4 min 19 s"),
        (3599.7, "1 h 00 min"),
        (7300, "2 h 01 min"),
    ],
)
def test_durations_are_shown_as_people_say_them(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_what_rounds_to_sixty_seconds_is_a_minute() -> None:
    assert format_seconds(59.96) == "1 min 00 s"


def test_counts_have_their_noun_in_the_right_number() -> None:
    assert [count(0, "text"), count(1, "text"), count(2225, "text")] == ["0 texts", "1 text", "2,225 texts"]
    assert count(2, "process", "processes") == "2 processes"


def test_a_share_of_nothing_is_nothing() -> None:
    assert [share(3, 8), share(0, 0)] == ["37.5 %", "0.0 %"]
