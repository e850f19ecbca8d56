"""`labkit release --wheels`: packages for a room without a network; pip itself fetches them, from indexes on disk."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.handout import wheels

pytestmark = pytest.mark.long


def publish(index: Path, name: str, version: str) -> None:
    """Put the smallest wheel that pip takes into an index."""
    folder, inside = index / name, f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    file = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(folder / file, "w") as archive:
        archive.writestr(f"{inside}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{inside}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{inside}/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{file}">{file}</a>')


def test_wheels_hold_the_build_without_cuda_and_say_for_what_machine_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu, pypi, release = (tmp_path / each for each in ("cpu", "pypi", "class"))
    publish(cpu, "torch", "9.9.9+cpu")  # as PyTorch's own index names it
    publish(pypi, "torch", "9.9.9")
    publish(pypi, "tiny", "1.0")
    release.mkdir()
    (release / "requirements.lock").write_text("torch==9.9.9\ntiny==1.0\n")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", pypi.as_uri())
    monkeypatch.setattr("sys.platform", "linux")

    def fetched(folder: str) -> list[str]:
        said = wheels.fetch_wheels(release, release / folder)
        assert "2 packages" in said and "For others run it" in said
        return sorted(path.name.partition("-py3")[0] for path in (release / folder).iterdir())

    monkeypatch.setattr(wheels, "CPU_BUILDS", cpu.as_uri())
    assert fetched("wheels") == ["tiny-1.0", "torch-9.9.9+cpu"]
    monkeypatch.setattr(wheels, "CPU_BUILDS", (tmp_path / "away").as_uri())
    assert fetched("others") == ["tiny-1.0", "torch-9.9.9"]
    (release / "requirements.lock").write_text("torch==9.9.9\nnowhere==1.0\n")
    with pytest.raises(EnvironmentProblem, match=r"could not be downloaded: ERROR: .*nowhere"):
        wheels.fetch_wheels(release, release / "wheels")
    with pytest.raises(ConfigError, match="--wheels needs a folder"):
        wheels.fetch_wheels(release, release / "requirements.lock")
