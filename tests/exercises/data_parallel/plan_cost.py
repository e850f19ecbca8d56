"""Wrong answers to plan_cost, each a mistake that learners really make, and the mistake a check must name."""

from __future__ import annotations

from tests.exercises.wrong_answer import WrongAnswers

WRONG = WrongAnswers(__name__)
wrong = WRONG.wrong


COSTS = """
def port_bytes(plan, num_devices):
    {ports}


def plan_seconds(plan, latency_s, bandwidth_Bps):
    {seconds}
"""
PORTS = "return [sum(m.num_bytes for m in plan if d in (m.src, m.dst)) for d in range(num_devices)]"
SECONDS = "return sum(latency_s + m.num_bytes / bandwidth_Bps for m in plan)"


def wrong_costs(name: str, mistake: str, ports: str = PORTS, seconds: str = SECONDS) -> None:
    wrong(name, mistake, COSTS.format(ports=ports, seconds=seconds))


wrong_costs("prints", "returns nothing", ports="print(len(plan))")
wrong_costs("sent", "only what is sent", PORTS.replace("d in (m.src, m.dst)", "d == m.src"))
wrong_costs("received", "only what is received", PORTS.replace("d in (m.src, m.dst)", "d == m.dst"))
wrong_costs("bytes only", "latency forgotten", seconds="return sum(m.num_bytes for m in plan) / bandwidth_Bps")
wrong_costs("one latency", "latency once", seconds="return latency_s + sum(m.num_bytes for m in plan) / bandwidth_Bps")
wrong_costs(
    "the longest",
    "all at the same time",
    seconds="return max((latency_s + m.num_bytes / bandwidth_Bps for m in plan), default=0.0)",
)
