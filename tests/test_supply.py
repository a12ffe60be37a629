"""What others hand us and what we hand on: lock, bill of materials, licences, wheel, CI."""

import json
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement

from intarsia.data import DATASETS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "intarsia"
REGISTRIES = re.compile(r"https?://|--index|--find-links|--extra-index|file:")


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "requirements")
    monkeypatch.syspath_prepend(ROOT / "docs" / "build")


@pytest.mark.parametrize("file", ["core", "backbones", "studio", "dev"])
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_lock_answers_to_pyproject(file: str, python: str, platform: str) -> None:
    """Every requirement, of the extras too, has one version there that fits it."""
    import lock

    files = ["torch", *lock.CHAIN][: 2 + list(lock.CHAIN).index(file)]
    where = _environment(python, platform)
    pins: dict[str, list[str]] = {}
    for pin in lock.read_lock():
        if pin.file in files and (not pin.marker or Marker(pin.marker).evaluate(where)):
            pins.setdefault(pin.name, []).append(pin.version)
    for wanted in _wanted("pinned" if file == "core" else file):
        if wanted.marker and not wanted.marker.evaluate(where):
            continue
        versions = pins.get(lock._normal(wanted.name), [])
        assert len(versions) == 1, f"run `make lock`: {wanted} has {versions}"
        assert wanted.specifier.contains(versions[0]), f"run `make lock`: {wanted}, {versions}"


def test_every_file_of_the_lock_has_a_digest_and_no_place() -> None:
    import lock

    pins = lock.read_lock()
    assert len(pins) > 150
    assert not [pin for pin in pins if not pin.digests]
    digests = [digest for pin in pins for digest in pin.digests]
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests)
    texts = {path.name: path.read_text() for path in (ROOT / "requirements").glob("*.txt")}
    assert sorted(texts) == ["backbones.txt", "core.txt", "dev.txt", "studio.txt", "torch.txt"]
    assert not [name for name, text in texts.items() if REGISTRIES.search(text)]
    assert lock.write_files(pins) == texts  # nothing in them but pins


def test_a_platforms_build_of_torch_is_asked_for_by_version_alone() -> None:
    """Of torch and CUDA's libraries nothing is in the files that every machine installs."""
    import lock

    apart = {pin.name for pin in lock.read_lock() if pin.file == "torch"}
    assert "torch" in apart
    assert all(lock.TORCH.match(name) for name in apart)
    others = {pin.name for pin in lock.read_lock() if pin.file != "torch"}
    assert not [name for name in others if lock.TORCH.match(name)]


def test_the_bill_of_materials_holds_the_lock() -> None:
    import lock
    import sbom

    bill = sbom.bill()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "intarsia"
    parts = {(part["name"], part["version"]): part for part in bill["components"]}
    assert len(parts) == len(bill["components"])
    assert parts.keys() == {(pin.name, pin.version) for pin in lock.read_lock()}
    numpy = next(part for (name, _), part in parts.items() if name == "numpy")
    assert numpy["purl"] == f"pkg:pypi/numpy@{numpy['version']}" == numpy["bom-ref"]
    hashes = numpy["externalReferences"][0]["hashes"]
    pin = next(pin for pin in lock.read_lock() if pin.name == "numpy")
    assert {f"sha256:{entry['content']}" for entry in hashes} == set(pin.digests)
    assert json.dumps(sbom.bill()) == json.dumps(bill)


def test_licences_list_the_lock_and_the_data_sets() -> None:
    """Licences depend on what is installed, so that the names and versions alone are compared."""
    import lock

    import licences

    text = licences.PAGE.read_text()
    listed = re.findall(r"^\| ([a-z0-9][a-z0-9.-]*) \| (\d\S*) \| (.+) \|$", text, re.MULTILINE)
    assert sorted(row[:2] for row in listed) == sorted(
        (pin.name, pin.version) for pin in lock.read_lock()
    ), "run `make licences`"
    assert len([row for row in listed if row[2] != licences.NOT_READ]) > 150
    assert not [row for row in listed if row[2] == "not named"]
    for row in licences.data_rows():
        assert "| " + " | ".join(row) + " |" in text, "run `make licences`"
    assert len(licences.data_rows()) == len(DATASETS)


def test_actions_are_pinned_by_commit_and_may_only_read() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text()
        used = re.findall(r"uses: (\S+)(.*)", text)
        assert used
        for action, comment in used:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r"\s+# v\d+\.\d+\.\d+", comment), f"{action} names no version"
        workflow = yaml.safe_load(text)
        assert workflow["permissions"] == {"contents": "read"}
        assert not [job for job in workflow["jobs"].values() if "permissions" in job]


def test_wheel_and_sdist_hold_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = pytest.importorskip("hatchling.build", reason="make brings hatchling into .venv")
    monkeypatch.chdir(ROOT)
    sdist = tmp_path / build.build_sdist(str(tmp_path))
    root = tmp_path / sdist.name.removesuffix(".tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{root.name}/") for name in archive.getnames()}
        needed = [m for m in archive if re.match(r"[^/]+/(src/|[^/]+$)", m.name)]
        archive.extractall(tmp_path, needed, filter="data")
    assert {"LICENSE", "README.md", "Makefile", ".ci/run", "requirements/core.txt"} < names
    assert {"tests/test_supply.py", "docs/index.md", "mkdocs.yml"} < names
    monkeypatch.chdir(root)
    with zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path))) as wheel:
        held = {name for name in wheel.namelist() if name.startswith("intarsia/")}
    files = {
        f"intarsia/{path.relative_to(SOURCE)}"
        for path in SOURCE.rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }
    assert held == files
    assert {"intarsia/py.typed", "intarsia/studies/maxent/maxent.json"} < held
    assert {Path(name).suffix for name in held} >= {".css", ".js", ".json", ".mplstyle"}


def _wanted(extra: str) -> list[Requirement]:
    """What the package and one of its extras ask for, the extras it names included."""
    about = _project()["project"]
    wanted = [Requirement(text) for text in about["dependencies"]]
    wanted += [Requirement(text) for text in _project()["build-system"]["requires"]]
    for text in about["optional-dependencies"][extra]:
        requirement = Requirement(text)
        if requirement.name == "intarsia":
            wanted += [own for other in requirement.extras for own in _wanted(other)]
        else:
            wanted.append(requirement)
    return wanted


def _project() -> dict[str, Any]:
    import lock

    return lock.project()


def _environment(python: str, platform: str) -> dict[str, str]:
    system = {"linux": "Linux", "darwin": "Darwin", "win32": "Windows"}[platform]
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": platform,
        "platform_system": system,
        "platform_machine": "arm64" if platform == "darwin" else "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "os_name": "nt" if platform == "win32" else "posix",
        "extra": "",
    }
