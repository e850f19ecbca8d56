"""Plans an instructor follows name exercises that are there and fit their time; files for clusters are whole."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from labkit.lessons.lesson import Lesson
from labkit.lessons.presentation import read_workshop
from labkit.lessons.source import load

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))
PLANS = sorted((ROOT / "docs" / "workshops").glob("*.toml"))


@pytest.fixture(scope="module")
def lessons() -> dict[str, Lesson]:
    return {path.stem: load(path) for path in SOURCES}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / "elsewhere.md").read_text(), re.M | re.S)


def test_the_weeks_show_every_deck_and_their_exercises_fit_into_a_class(lessons: dict[str, Lesson]) -> None:
    weeks = re.findall(r"^\| (\d+) \| `(\w+)` \| (.+?) \| (\w+) \|$", (ROOT / "docs" / "workshop.md").read_text(), re.M)
    assert [int(number) for number, *_ in weeks] == list(range(1, len(weeks) + 1))
    assert {deck for _, deck, *_ in weeks} == set(lessons)
    for _, deck, shown, _ in weeks:
        minutes = {exercise.number: exercise.minutes for exercise in lessons[deck].exercises if not exercise.bonus}
        named = re.findall(r"\b\d+\.\d+\b", shown.rpartition(". ")[2])
        order = list(minutes)
        if " to " in shown.rpartition(". ")[2]:
            named = order[order.index(named[0]) : order.index(named[-1]) + 1]
        assert named and sum(minutes[each] for each in named) <= 75


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_workshop_gives_its_exercises_the_time_they_take(path: Path, lessons: dict[str, Lesson]) -> None:
    for part in (part for part in read_workshop(path).parts if part.lesson):
        (lesson,) = (lesson for name, lesson in lessons.items() if name.startswith(part.lesson))
        minutes = {exercise.id: exercise.minutes for exercise in lesson.exercises}
        assert sum(minutes[each] for each in part.exercises) <= part.minutes


def test_the_deck_follows_the_plan_of_the_guide_minute_by_minute() -> None:
    guide = (ROOT / "docs" / "workshop.md").read_text().partition("## Three hours")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+):(\d\d) \| (\d+) \| (?:(\d\d): |break)", guide, re.M)
    told = [(60 * int(hours) + int(minutes), int(takes), lesson) for hours, minutes, takes, lesson in rows]
    planned, begin = [], 0
    for part in read_workshop(ROOT / "docs" / "workshops" / "three_hours.toml").parts:
        planned.append((begin, part.minutes, part.lesson))
        begin += part.minutes
    assert planned == told and begin == 180


def test_the_slurm_script_is_bash_and_starts_one_launcher_on_every_node() -> None:
    scripts = [block for block in blocks("sh") if "#SBATCH" in block]
    assert all(subprocess.run(["bash", "-n"], input=each, text=True, timeout=300).returncode == 0 for each in scripts)
    (script,) = (each for each in scripts if "torchrun" in each)
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", script, re.M))
    assert options["ntasks-per-node"] == "1"
    assert f"--nproc-per-node={options['gpus-per-node']} " in script


def test_the_kubernetes_job_mounts_what_it_has_and_asks_for_a_gpu_for_every_rank() -> None:
    (text,) = blocks("yaml")
    job = yaml.safe_load(text)
    assert (job["kind"], job["apiVersion"]) == ("PyTorchJob", "kubeflow.org/v1")
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    pod = worker["template"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == "pytorch" and worker["replicas"] == 2  # the operator looks for this name
    assert str(container["resources"]["limits"]["nvidia.com/gpu"]) == job["spec"]["nprocPerNode"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_the_environment_for_binder_is_the_locked_one() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = (each["pip"] for each in environment["dependencies"] if isinstance(each, dict))
    assert pip == ["-r requirements.lock", "-e ."]
