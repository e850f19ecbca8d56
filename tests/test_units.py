"""Sizes, times and bandwidths: what is printed can be read, what is nonsense is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import ConfigError
from labkit.units import (
    BANDWIDTHS_BPS,
    BYTES,
    TIMES_NS,
    format_bandwidth,
    format_bytes,
    format_time,
    parse_bandwidth,
    parse_bytes,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16 MiB", 16 * 2**20),
        ("1.5 GB", 1_500_000_000),
        ("64KB", 64_000),
        ("100 B", 100),
        ("1_000 kB", 10**6),
        ("0 B", 0),
    ],
)
def test_sizes_are_decimal_or_binary_by_their_unit(text: str, size: int) -> None:
    assert parse_bytes(text) == size


def test_times_are_whole_nanoseconds() -> None:
    assert [parse_time(t) for t in ("12.3 ms", "1 us", "1 µs", "2 s", "1.6 ns")] == [
        12_300_000,
        1000,
        1000,
        2 * 10**9,
        2,
    ]


def test_a_gigabyte_per_second_is_1e9_and_gbit_counts_bits() -> None:
    assert parse_bandwidth("25 GB/s") == 25e9
    assert parse_bandwidth("200 Gbit/s") == 25e9
    assert format_bandwidth(25e9) == "25 GB/s"


def test_three_digits_and_the_unit_that_fits() -> None:
    assert [format_time(t) for t in (0, 999, 1000, 12_345_678, 999_999, 1_920_000, 90 * 10**9)] == [
        *("0 ns", "999 ns", "1 µs", "12.3 ms", "1 ms", "1.92 ms", "90 s"),
    ]
    assert [format_bytes(b) for b in (0, 512, 1536, 10**6, 16 * 2**20)] == [
        "0 B",
        "512 B",
        "1.54 KB",
        "1 MB",
        "16.8 MB",
    ]
    assert [format_bytes(b, binary=True) for b in (1536, 16 * 2**20)] == ["1.5 KiB", "16 MiB"]
    assert format_time(-1500) == "-1.5 µs"


@given(st.integers(0, 10**4), st.sampled_from(sorted(BYTES)))
def test_whole_numbers_of_a_unit_are_read_exactly(count: int, unit: str) -> None:
    assert parse_bytes(f"{count} {unit}") == count * BYTES[unit]
    assert parse_bandwidth(f"{count} {unit}/s") == count * BYTES[unit]


@given(st.integers(0, 10**15), st.booleans())
def test_a_printed_size_reads_back_within_half_a_percent(num_bytes: int, binary: bool) -> None:
    text = format_bytes(num_bytes, binary=binary)
    number, unit = text.split()
    assert float(number) * BYTES[unit] == pytest.approx(num_bytes, rel=0.005)
    assert len(number.replace(".", "").lstrip("0")) <= 4


@given(st.integers(0, 10**15))
def test_a_printed_time_reads_back_within_half_a_percent(time_ns: int) -> None:
    assert parse_time(format_time(time_ns)) == pytest.approx(time_ns, rel=0.005)


@given(st.floats(0.001, 1e15))
def test_a_printed_bandwidth_reads_back_within_half_a_percent(bandwidth: float) -> None:
    assert parse_bandwidth(format_bandwidth(bandwidth)) == pytest.approx(bandwidth, rel=0.005)


@pytest.mark.parametrize("text", ["", "12", "GB", "-1 GB", "1 gb", "1,5 GB", "nan GB", "1 GB/s", "1e999 GB", "1 GB 2"])
def test_a_size_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"GB|size"):
        parse_bytes(text)


def test_refusals_say_what_was_given_and_what_is_possible() -> None:
    with pytest.raises(
        ConfigError, match=r"'5 parsecs' is not a time; write a number and one of ns, us, ms, s, min, h\."
    ):
        parse_time("5 parsecs")
    with pytest.raises(ConfigError, match=r"'1\.5 B' is 1\.5 bytes; a size must be a whole number of bytes\."):
        parse_bytes("1.5 B")
    with pytest.raises(ConfigError, match="is not a bandwidth"):
        parse_bandwidth("3 GB")
    with pytest.raises(ConfigError, match="inf has no unit"):
        format_time(float("inf"))


def test_every_unit_is_read_back_by_its_own_name() -> None:
    assert all(parse_time(f"1 {unit}") == size for unit, size in TIMES_NS.items())
    assert all(parse_bandwidth(f"1 {unit}") == size for unit, size in BANDWIDTHS_BPS.items())
