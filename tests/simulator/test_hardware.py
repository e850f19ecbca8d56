"""The catalogue of devices and links."""

from __future__ import annotations

import pytest

from labkit.errors import ConfigError
from labkit.hardware import DEVICES, LINKS, Device, find_device, find_link


def test_every_figure_has_its_source_in_words() -> None:
    for device in DEVICES.values():
        assert len(device.source.split()) >= 3 and len(device.launch_source.split()) >= 3, device.name
        assert device.share_source and device.native_link in LINKS
    for link in LINKS.values():
        assert len(link.source.split()) >= 3 and link.latency_source and link.share_source, link.name


def test_peaks_are_dense_and_by_dtype() -> None:
    h100 = find_device("h100")
    assert h100.flops_per_second("bfloat16") == pytest.approx(989.5e12)
    assert h100.flops_per_second("float32") == pytest.approx(67e12)
    assert h100.flops_per_second("float32", tf32=True) == pytest.approx(494.5e12)
    assert h100.flops_per_second("complex64") == h100.flops_per_second("float32")


def test_nvlink_counts_one_direction_of_all_links() -> None:
    assert [find_link(f"nvlink{n}").bytes_per_second / 1e9 for n in (2, 3, 4, 5)] == [150, 300, 450, 900]


def test_pcie_and_networks_are_in_bytes() -> None:
    assert find_link("pcie4").bytes_per_second == pytest.approx(31.5e9, rel=1e-3)
    assert find_link("ethernet_10g").bytes_per_second == 1.25e9
    assert find_link("ib_ndr").bytes_per_second == 50e9


def test_names_are_found_however_they_are_spelt_and_objects_pass() -> None:
    assert find_device("RTX-4090") is find_device("rtx_4090") is DEVICES["rtx4090"]
    assert find_device("cpu").name == "epyc7763"
    mine = Device("mine", 1, 1.0, {"float32": 1.0}, "pcie3", "measured here")
    assert find_device(mine) is mine


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="No device is called 'h1000'; use one of v100, a100, h100"):
        find_device("h1000")
    with pytest.raises(ConfigError, match="No link is called 'nvlink9'; use one of nvlink2"):
        find_link("nvlink9")
