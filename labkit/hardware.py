"""What accelerators and links can do, from their datasheets.

Peaks are dense (no structured sparsity), bandwidths of links are those of one direction and one port: for NVLink all
links of one GPU together, for a network card that card. Where a figure is an assumption and no datasheet's, its source
says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from labkit.errors import ConfigError
from labkit.kernels import kernel as kernel
from labkit.product_rates import A100, H100, ProductRates
from labkit.words import plainly

_FORMAT = 1
_ANEW = "`labkit calibrate --out FILE` measures this host and writes such a file."
_LAUNCH = "assumption: eager PyTorch issues one kernel every 4 µs or so from a current host; a longer kernel hides it"
_KERNEL = "assumption: the shortest elementwise kernels take 1 to 2 µs on the device"
_REACH = "assumption: large matrix multiplies and copies reach 75 % and 85 % of the datasheet's peaks"
_REACH_A100 = (
    "measured by Azure (AI-benchmarking-guide, ND A100 v4 results): cuBLASLt FP16 of 8192^3 at 253.7 of 312 TFLOP/s; "
    "copy at 1.61 of 2.039 TB/s"
)
_REACH_H100 = (
    "bfloat16 matmul of the best shape at 794.5 of 989.5 TFLOP/s (S. Bekman, ml-engineering, MAMF table, torch 2.7); "
    "copy at 2.90 of 3.35 TB/s (Azure AI-benchmarking-guide, ND H100 v5 results)"
)
_ATTENTION_A100 = "FlashAttention-2: 50 to 73 % on A100 (Dao 2023, arXiv 2307.08691); 179.5 TFLOP/s by Azure's guide"
_ATTENTION_H100 = "FlashAttention-2 on H100: 35 % (Shah et al. 2024, arXiv 2407.08608); 327.9 TFLOP/s by Azure's guide"
_HOST_COST = "assumption: dispatching one operator on the host takes about 1.5 µs"


@dataclass(frozen=True)
class Device:
    """One accelerator or processor.

    Attributes:
        name: What labkit.virtual(gpu=...) calls it.
        memory_bytes: Capacity.
        memory_bytes_per_second: Peak rate of its memory.
        peak_flops: Peak floating-point (for integers: integer) operations per second by dtype; "tf32" is float32 with
            tensor cores.
        native_link: The link between devices of one node that it is sold with.
        source: Where these figures come from.
        launch_ns: Least time between two operators.
        launch_source: Where that comes from.
        compute_share: Share of the peak that a large matrix multiply reaches.
        memory_share: Share of the peak rate that a large copy reaches.
        share_source: Where those come from.
        cores: Processor cores that all ranks of a node compute on, one each at a time, as on a host without
            accelerators; None where every rank has a device of its own. Operators of such a host run on the thread
            that issues them, so launch_ns adds to what they take.
        measured: Operator -> how long it took on this device with how much work. Operators in it take as long as
            measured, others follow the peaks.
        kernel_ns: Least time a kernel takes on the device; counts where a device computes beside its host.
        kernel_source: Where that comes from.
        products: What products of 16-bit matrices reach by their size; counts where a device computes beside its host.
            None where nobody measured it: all reach compute_share then.
        attention_share: Share of the 16-bit peak that flash attention reaches, counting only scores that a causal mask
            leaves; counts where a device computes beside its host. None: as a product.
        attention_source: Where that comes from.
    """

    name: str
    memory_bytes: int
    memory_bytes_per_second: float
    peak_flops: Mapping[str, float]
    native_link: str
    source: str
    launch_ns: int = 4_000
    launch_source: str = _LAUNCH
    compute_share: float = 0.75
    memory_share: float = 0.85
    share_source: str = _REACH
    cores: int | None = None
    measured: Mapping[str, tuple[Measured, ...]] = field(default_factory=lambda: MappingProxyType({}))
    kernel_ns: int = 1_500
    kernel_source: str = _KERNEL
    products: ProductRates | None = None
    attention_share: float | None = None
    attention_source: str = "as a product"

    def flops_per_second(self, dtype: str, *, tf32: bool = False) -> float:
        """Return the peak for a dtype such as "bfloat16"; one that is not listed counts as float32."""
        if tf32 and dtype == "float32" and "tf32" in self.peak_flops:
            return self.peak_flops["tf32"]
        return self.peak_flops.get(dtype, self.peak_flops["float32"])

    def measured_seconds(self, operator: str, flops: float, num_bytes: float) -> float | None:
        """Return how long an operator takes by what was measured of it, None where it was not.

        The peaks say how long it would take at best; how much longer it took with about as much work is what was
        measured: the mean, in logarithms, of the nearest points, those nearer counting more. It never takes less than
        its quickest call, which is all overhead.
        """
        points = self.measured.get(operator)
        if not points:
            return None
        near = []
        for point in points:
            away = (math.log2((flops + 1) / (point.flops + 1))) ** 2 + (
                math.log2((num_bytes + 1) / (point.bytes + 1))
            ) ** 2
            near.append((away, math.log(point.seconds / self._at_best(point.flops, point.bytes))))
        near = sorted(near)[:4]
        weights = [1 / (away + 0.05) for away, _ in near]
        slower = sum(weight * ratio for weight, (_, ratio) in zip(weights, near, strict=True)) / sum(weights)
        least = min(point.seconds for point in points)
        return max(least, self._at_best(flops, num_bytes) * math.exp(slower))

    def _at_best(self, flops: float, num_bytes: float) -> float:
        return flops / self.peak_flops["float32"] + (num_bytes + 1) / self.memory_bytes_per_second


@dataclass(frozen=True)
class Measured:
    """How long an operator took on calls with about as much work.

    Attributes:
        flops: Floating-point operations, 0 where they are not counted.
        bytes: Bytes read and written.
        seconds: How long they took.
    """

    flops: float
    bytes: float
    seconds: float


@dataclass(frozen=True)
class Link:
    """A link between two devices of a node, or a port of the network between nodes.

    Attributes:
        name: What labkit.virtual(link=..., nic=...) calls it.
        bytes_per_second: Raw rate of one direction.
        latency_ns: Time from posting a small message to its arrival.
        source: Where the rate comes from.
        latency_source: Where the latency comes from.
        share: Share of the raw rate that payload gets.
        share_source: Where that comes from.
        nccl: Row of NCCL's cost model that collectives over it follow, "nvlink", "pci" or "net"; "" for a link that
            costs each message its latency and its bytes, and no more.
        sums_in_switch: Whether a switch of this link can add tensors (NVLink SHARP, "NVLS").
        post_ns: What posting a message or a collective costs the rank's own thread.
        host_bytes_per_second: What the cores of a host move together when they do nothing else, where moving bytes is
            work for the cores that the ranks compute on (gloo over loopback); None where it costs them nothing.
        collective_ns: What a collective takes beyond its messages, on a host that was measured.
    """

    name: str
    bytes_per_second: float
    latency_ns: int
    source: str
    latency_source: str
    share: float = 1.0
    share_source: str = "the raw rate itself"
    nccl: Literal["", "nvlink", "pci", "net"] = ""
    sums_in_switch: bool = False
    post_ns: int = 0
    host_bytes_per_second: float | None = None
    collective_ns: int = 0

    @property
    def payload_bytes_per_second(self) -> float:
        """Return what is left for payload."""
        return self.bytes_per_second * self.share


@dataclass(frozen=True)
class Hardware:
    """A host as it was measured: what labkit.calibration.calibrate returns and labkit.virtual(gpu=...) takes.

    Attributes:
        device: What a rank computes on.
        link: What connects the ranks of this host.
        made_on: Processor, cores, versions and date of the measurement, for people.
    """

    device: Device
    link: Link
    made_on: str

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        device = {one.name: getattr(self.device, one.name) for one in fields(Device)}
        device["peak_flops"] = dict(self.device.peak_flops)
        device["measured"] = {
            name: [[point.flops, point.bytes, point.seconds] for point in points]
            for name, points in self.device.measured.items()
        }
        device["products"] = None if self.device.products is None else asdict(self.device.products)
        data = {"labkit_hardware": _FORMAT, "made_on": self.made_on, "link": asdict(self.link), "device": device}
        Path(path).write_text(json.dumps(data) + "\n", encoding="utf-8")

    def __repr__(self) -> str:
        return f"Hardware({self.device.name}, {self.link.name})"


def load(path: str | Path) -> Hardware:
    """Return what Hardware.save wrote.

    Raises:
        ConfigError: If the file cannot be read or holds something else.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as hardware: {error}. {_ANEW}") from None
    if not isinstance(data, dict) or data.get("labkit_hardware") != _FORMAT:
        raise ConfigError(f"{path} is not a hardware file of format {_FORMAT}. {_ANEW}")
    try:
        device, link = data["device"], data["link"]
        device["peak_flops"] = MappingProxyType(device["peak_flops"])
        device["measured"] = MappingProxyType(
            {
                name: tuple(Measured(*map(float, point)) for point in points)
                for name, points in device["measured"].items()
            }
        )
        if device.get("products") is not None:
            points = tuple((int(length), int(sums), float(rate)) for length, sums, rate in device["products"]["points"])
            device["products"] = ProductRates(points, str(device["products"]["source"]))
        return Hardware(Device(**device), Link(**link), str(data["made_on"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} does not describe hardware: {plainly(error)}. {_ANEW}") from None


def _flops(**tera: float) -> Mapping[str, float]:
    return MappingProxyType({dtype: value * 1e12 for dtype, value in tera.items()})


_GB = 10**9
_ALL_DEVICES = (
    Device(
        "v100", 32 * _GB, 900e9,
        _flops(float64=7.8, float32=15.7, float16=125, bfloat16=15.7, int8=62.8), "nvlink2",
        "NVIDIA V100 datasheet (2020), SXM2 32 GB; bfloat16 has no tensor cores there and runs as float32",
    ),
    Device(
        "a100", 80 * _GB, 2039e9,
        _flops(float64=9.7, float32=19.5, tf32=156, float16=312, bfloat16=312, int8=624), "nvlink3",
        "NVIDIA A100 datasheet (2021), SXM4 80 GB, without sparsity",
        compute_share=0.81, memory_share=0.79, share_source=_REACH_A100,
        products=A100, attention_share=0.60, attention_source=_ATTENTION_A100,
    ),
    Device(
        "h100", 80 * _GB, 3350e9,
        _flops(float64=34, float32=67, tf32=494.5, float16=989.5, bfloat16=989.5, float8_e4m3fn=1979,
               float8_e5m2=1979, int8=1979), "nvlink4",
        "NVIDIA H100 datasheet (2023), SXM5 80 GB; half of the figures given with sparsity",
        compute_share=0.80, memory_share=0.87, share_source=_REACH_H100,
        products=H100, attention_share=0.35, attention_source=_ATTENTION_H100,
    ),
    Device(
        "h200", 141 * _GB, 4800e9,
        _flops(float64=34, float32=67, tf32=494.5, float16=989.5, bfloat16=989.5, float8_e4m3fn=1979,
               float8_e5m2=1979, int8=1979), "nvlink4",
        "NVIDIA H200 datasheet (2024), SXM; half of the figures given with sparsity",
        compute_share=0.80, memory_share=0.87, share_source="taken as the H100's: the same chip with other memory",
        products=H100, attention_share=0.35, attention_source=_ATTENTION_H100,
    ),
    Device(
        "b200", 180 * _GB, 7700e9,
        _flops(float64=37, float32=75, tf32=1100, float16=2250, bfloat16=2250, float8_e4m3fn=4500,
               float8_e5m2=4500, int8=4500), "nvlink5",
        "NVIDIA HGX B200 datasheet (2025), the figures of one GPU, half of those given with sparsity",
    ),
    Device(
        "mi300x", 192 * _GB, 5300e9,
        _flops(float64=81.7, float32=163.4, tf32=653.7, float16=1307.4, bfloat16=1307.4, float8_e4m3fnuz=2614.9,
               float8_e5m2fnuz=2614.9, int8=2614.9), "infinity_fabric",
        "AMD Instinct MI300X datasheet (2023), without sparsity; float64 and float32 as vectors, as torch uses them",
    ),
    Device(
        "t4", 16 * _GB, 300e9,
        _flops(float64=0.25, float32=8.1, float16=65, bfloat16=8.1, int8=130), "pcie3",
        "NVIDIA T4 datasheet (2019); float64 is 1/32 of float32 on this chip; bfloat16 has no tensor cores there and "
        "runs as float32",
    ),
    Device(
        "l4", 24 * _GB, 300e9,
        _flops(float64=0.47, float32=30.3, tf32=60, float16=121, bfloat16=121, float8_e4m3fn=242.5,
               float8_e5m2=242.5, int8=242.5), "pcie4",
        "NVIDIA L4 datasheet (2023), half of the figures given with sparsity; float64 is 1/64 of float32 on this chip",
    ),
    Device(
        "rtx4090", 24 * _GB, 1008e9,
        _flops(float64=1.29, float32=82.6, tf32=82.6, float16=165.2, bfloat16=165.2, float8_e4m3fn=330.3,
               float8_e5m2=330.3, int8=660.6), "pcie4",
        "NVIDIA Ada GPU architecture whitepaper (2022), appendix A, float32 accumulation, without sparsity",
    ),
    Device(
        "epyc7763", 512 * _GB, 204.8e9,
        _flops(float64=2.51, float32=5.02, float16=5.02, bfloat16=5.02, int8=10.0), "ethernet_25g",
        "AMD EPYC 7763 datasheet (2021): 64 cores at 2.45 GHz, two 256-bit multiply-adds each; 8 channels DDR4-3200; "
        "the memory size is an assumption",
        launch_ns=1_500, launch_source=_HOST_COST,
    ),
)  # fmt: skip

DEVICES: Mapping[str, Device] = MappingProxyType({device.name: device for device in _ALL_DEVICES})
_DEVICE_ALIASES = {"cpu": "epyc7763", "4090": "rtx4090"}

_TUNING = "NCCL's own cost model (src/graph/tuning.cc, 2.20): base latency of a ring with protocol LL, 6.6 µs, plus its"
_SPEED = "NCCL's own figure for this link (src/graph/topo.h)"
_TCP = "assumption: 15 µs one way through two kernels' TCP stacks and a switch"
_FRAMES = "1448 bytes of payload in each Ethernet frame of 1538 with TCP timestamps, MTU 1500"


def _nvlink(generation: int, links: int, gigabytes: int, reached: float, device: str) -> Link:
    source = f"NVIDIA {device} datasheet: {links} links of {gigabytes} GB/s in each direction"
    return Link(
        f"nvlink{generation}", links * gigabytes * 1e9, 7_200, source, f"{_TUNING} NVLink step, 0.6 µs",
        reached / gigabytes, f"{_SPEED}: {reached} GB/s of {gigabytes}", nccl="nvlink", sums_in_switch=generation >= 4,
    )  # fmt: skip


def _pcie(generation: int, gigatransfers: int) -> Link:
    rate = gigatransfers * 1e9 * 16 * 128 / 130 / 8
    source = f"PCI Express base specification {generation}.0: {gigatransfers} GT/s, 16 lanes, 128b/130b code"
    return Link(
        f"pcie{generation}", rate, 7_600, source, f"{_TUNING} PCI step, 1 µs", 12 / 15.75,
        f"{_SPEED}: 12 GB/s of generation 3's 15.75", nccl="pci",
    )  # fmt: skip


def _infiniband(name: str, gigabits: int) -> Link:
    source = f"InfiniBand {name.upper()}, 4 lanes: {gigabits} Gbit/s of data"
    return Link(
        f"ib_{name}", gigabits * 1e9 / 8, 9_300, source, f"{_TUNING} network step, 2.7 µs", 0.96,
        f"{_SPEED}: 12 GB/s of a 100 Gbit/s port", nccl="net",
    )  # fmt: skip


def _ethernet(gigabits: int) -> Link:
    source = f"IEEE 802.3, {gigabits} Gbit/s"
    return Link(f"ethernet_{gigabits}g", gigabits * 1e9 / 8, 15_000, source, _TCP, 1448 / 1538, _FRAMES)


_INFINITY_FABRIC = Link(
    "infinity_fabric", 7 * 64e9, 7_200, "AMD Instinct MI300X datasheet: 7 links of 64 GB/s in each direction",
    "assumption: as NVLink's", 0.70, "assumption: as much of the rate as PCI Express and NVLink carry payload",
)  # fmt: skip

_ALL_LINKS = (
    _nvlink(2, 6, 25, 20.0, "V100"), _nvlink(3, 12, 25, 20.0, "A100"),
    _nvlink(4, 18, 25, 20.6, "H100"), _nvlink(5, 18, 50, 40.1, "B200"),
    _pcie(3, 8), _pcie(4, 16), _pcie(5, 32),
    _INFINITY_FABRIC,
    _infiniband("hdr", 200), _infiniband("ndr", 400),
    *(_ethernet(gigabits) for gigabits in (1, 10, 25, 100, 400)),
)  # fmt: skip

LINKS: Mapping[str, Link] = MappingProxyType({link.name: link for link in _ALL_LINKS})
_LINK_ALIASES = {"ib_200g": "ib_hdr", "ib_400g": "ib_ndr"}


def find_device(device: str | Device) -> Device:
    """Return the device of this name, or the device itself.

    Raises:
        ConfigError: If the catalogue has no such name.
    """
    if isinstance(device, Device):
        return device
    name = str(device).lower().replace("-", "").replace("_", "")
    name = _DEVICE_ALIASES.get(name, name)
    if name not in DEVICES:
        raise ConfigError(f"No device is called {device!r}; use one of {', '.join(DEVICES)}, or a hardware.Device.")
    return DEVICES[name]


def find_link(link: str | Link) -> Link:
    """Return the link of this name, or the link itself.

    Raises:
        ConfigError: If the catalogue has no such name.
    """
    if isinstance(link, Link):
        return link
    name = str(link).lower()
    name = _LINK_ALIASES.get(name, name)
    if name not in LINKS:
        raise ConfigError(f"No link is called {link!r}; use one of {', '.join(LINKS)}, or a hardware.Link.")
    return LINKS[name]
