"""Set-up chooses a build of torch and lists missing parts, with simple programs for pip, uv and
id."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path
from shutil import copy, rmtree

import pytest
import yaml

from tests.edges import bed
from tests.patience import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
TORCH = "torch==2.13.0"
REFUSES = {  # what the stand-in for uv cannot install, as a pattern of its command line
    "nothing": "-",
    "the index of CPU builds": "*--torch-backend*",
    "every CPU build": "*--torch-backend*|*+cpu*",
}


def program(file: Path, script: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/bash\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    checkout = tmp_path / "checkout"
    (checkout / "scripts").mkdir(parents=True)
    locks = ("requirements.lock", "requirements-control.lock")
    for name in ("scripts/setup", "scripts/tools", "pyproject.toml", *locks):
        copy(ROOT / name, checkout / name)
    program(checkout / ".venv/bin/python", "exit 1")  # `pip config get` of a key that is not set
    program(checkout / "bin/nvidia-smi", "exit 9")
    return checkout


def run(checkout: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{checkout}/bin:{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=checkout,
        env={"PATH": path, "HOME": str(checkout), **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )


def set_up(checkout: Path, refused: str, *options: str, **environment: str) -> tuple[str, str]:
    """Packages that set-up had uv install first, and its output."""
    log = checkout / "uv.log"
    program(
        checkout / ".venv/bin/uv",
        f'echo "$UV_DEFAULT_INDEX $*" >>{log}\ncase "$*" in {REFUSES[refused]}) exit 1 ;; esac',
    )
    printed = run(checkout, "./scripts/setup", *options, **environment).stderr
    return next(line for line in log.read_text().splitlines() if "--dry-run" not in line), printed


def test_a_python_that_an_interrupted_run_left_without_pip_gets_it(checkout):
    log = checkout / "python.log"
    program(
        checkout / ".venv/bin/python",
        f"""echo "$*" >>{log}
        case "$*" in
        "-m pip install "*) printf '#!/bin/bash\n' >.venv/bin/uv && chmod +x .venv/bin/uv ;;
        "-m pip "*) exit 1 ;;
        esac""",
    )
    run(checkout, "./scripts/setup", "--control")
    first = [line.split()[:3] for line in log.read_text().splitlines()][:3]
    assert first == [["-m", "pip", "--version"], ["-m", "ensurepip"], ["-m", "pip", "install"]]


def test_a_failed_installation_is_one_sentence_with_the_way_out(checkout):
    program(checkout / ".venv/bin/uv", "exit 1")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(checkout, "./scripts/setup", "--control")
    assert caught.value.returncode == 2
    assert "run this again" in caught.value.stderr.splitlines()[-1]


def test_a_folder_that_cannot_be_written_is_named_before_any_step(checkout):
    command = ["./scripts/setup"]
    if os.geteuid() == 0:  # which may write anywhere, but on a read-only disk
        if bed.why_not():
            pytest.skip(bed.why_not())
        disk = 'mount --bind . . && mount -o remount,bind,ro . && cd "$PWD" && exec ./scripts/setup'
        command = ["unshare", "--mount", "bash", "-c", disk]
    checkout.chmod(0o555)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(checkout, *command)
    (sentence,) = caught.value.stderr.splitlines()
    assert str(checkout) in sentence


def test_torch_comes_from_the_index_of_cpu_builds(checkout):
    command, printed = set_up(checkout, "nothing")
    assert f"{TORCH} --torch-backend cpu" in command
    assert "CUDA" not in printed


def test_a_folder_that_pip_knows_comes_before_the_index(checkout):
    command, printed = set_up(checkout, "the index of CPU builds", PIP_FIND_LINKS="/wheels")
    assert f"{TORCH}+cpu" in command
    assert "CUDA" not in printed


@pytest.mark.parametrize("environment", [{}, {"PIP_FIND_LINKS": "/empty"}], ids=["alone", "folder"])
def test_without_a_cpu_build_the_big_one_comes_and_is_announced_before(checkout, environment):
    command, printed = set_up(checkout, "every CPU build", **environment)
    assert f"{TORCH} -r requirements.lock" in command
    assert "--torch-backend" not in command
    assert printed.index("3 GB") < printed.index("installing torch==")


def test_a_machine_with_a_gpu_takes_the_build_with_cuda_and_says_nothing_of_it(checkout):
    program(checkout / "bin/nvidia-smi", "exit 0")
    command, printed = set_up(checkout, "nothing")
    assert f"{TORCH} -r requirements.lock" in command
    assert "3 GB" not in printed


def test_uv_asks_the_mirror_that_pip_asks(checkout):
    command, _ = set_up(checkout, "nothing", PIP_INDEX_URL="https://mirror.example/simple")
    assert command.startswith("https://mirror.example/simple ")


def test_set_up_compiles_modules_by_importing_them_and_keeps_that(checkout):
    """By name, and each name is that of a module that is there. Images of Python often forbid to
    keep it."""
    log = checkout / "python.log"
    said = 'echo "$* ${PYTHONDONTWRITEBYTECODE-kept}"'
    program(checkout / ".venv/bin/python", f"{said} >>{log}; exit 1")
    command, _ = set_up(checkout, "nothing", PYTHONDONTWRITEBYTECODE="1")
    assert "compile" not in command
    scripts = re.findall(r"-c import (.*) kept$", log.read_text(), re.M)
    names = {name.strip() for script in scripts for name in script.split(",")}
    assert "torch._dynamo" in names
    places = [Path(sysconfig.get_path("purelib")), ROOT]
    for name in names:
        file = name.replace(".", "/")
        found = [p for p in places if (p / f"{file}.py").exists() or (p / file).is_dir()]
        assert found, name


def test_a_control_machine_gets_neither_torch_nor_ray(checkout):
    command, printed = set_up(checkout, "nothing", "--control")
    assert command.endswith("-r requirements-control.lock")
    assert "without torch and Ray" in printed


def test_a_control_machine_has_all_other_packages_in_the_same_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    every = [*project["project"]["dependencies"], *itertools.chain(*extras.values())]
    heavy = {"torch", "torchtuples", "pycox", "ray"}
    lacking = {one for one in every if re.split(r"[^a-z-]", one)[0] not in heavy}
    assert set(project["dependency-groups"]["control"]) == lacking
    locked, control = (
        set(re.findall(r"^[a-z0-9-]+==[^ ]+", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-control.lock")
    )
    assert control < locked
    assert not {one.partition("==")[0] for one in control} & heavy


def test_a_venv_that_set_up_did_not_make_is_left_as_it_is(checkout):
    """Made by another user, or broken: removing it is its owner's business."""
    (checkout / ".venv/bin/python").chmod(0o644)
    kept = sorted(checkout.rglob(".venv/**/*"))
    done = subprocess.run(
        ["./scripts/setup"], cwd=checkout, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 2
    (told,) = done.stderr.splitlines()
    assert "remove or rename it" in told
    assert sorted(checkout.rglob(".venv/**/*")) == kept


def test_a_venv_that_could_not_be_made_is_removed(checkout):
    rmtree(checkout / ".venv")
    program(
        checkout / "bin/half-a-python",
        'case "$*" in *venv*) mkdir -p .venv/bin; exit 1 ;; esac; exec python3 "$@"',
    )
    done = subprocess.run(
        ["./scripts/setup"],
        cwd=checkout,
        env={**os.environ, "PYTHON": str(checkout / "bin/half-a-python")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2
    assert "python3-venv" in done.stderr
    assert not (checkout / ".venv").exists()


def test_the_workflow_of_forges_runs_scripts_that_are_here_with_options_that_they_know():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    scripts = [step.removeprefix("sudo ").split() for step in steps if "./scripts/" in step]
    assert len(scripts) >= 3
    for script, *words in scripts:
        assert os.access(ROOT / script, os.X_OK)
        options = [word for word in words if word.startswith("-")]
        assert all(option in (ROOT / script).read_text() for option in options)


def tools(checkout: Path, *options: str, user: int) -> str:
    """Output of scripts/tools if only the programs that it needs itself are on the path."""
    for name in ("bash", "env", "sort"):
        (checkout / "bin" / name).symlink_to(f"/usr/bin/{name}")
    program(checkout / "bin/id", f"echo {user}")
    program(checkout / "bin/fio", "")
    done = run(checkout, "./scripts/tools", *options, PATH=str(checkout / "bin"))
    assert not done.stdout
    return done.stderr


@pytest.mark.parametrize("user", [0, 1000], ids=["no apt", "no root"])
def test_a_tool_that_cannot_be_installed_is_not_mentioned(checkout, user):
    program(checkout / "bin/apt-get" if user else checkout / "bin/dnf", "exit 1")
    assert tools(checkout, user=user) == ""


@pytest.mark.parametrize("option", ["--no-system-packages", "-q"])
def test_system_packages_are_installed_unless_that_is_declined(checkout, option):
    copy(ROOT / "scripts/test", checkout / "scripts/test")
    program(checkout / "scripts/setup", "")
    program(checkout / "scripts/check", "")
    program(checkout / "scripts/tools", 'echo "tools $*"')
    program(checkout / ".venv/bin/python", 'echo "python $*"')
    lines = run(checkout, "./scripts/test", option, "tests/core").stdout.splitlines()
    assert ("tools " in lines) == (option == "-q")
    (tests,) = [line for line in lines if "loadscope" in line]
    assert tests.endswith(" -q tests/core" if option == "-q" else "reorder tests/core")


def test_a_package_that_apt_refuses_stops_neither_the_others_nor_the_tests(checkout):
    log = checkout / "apt.log"
    program(
        checkout / "bin/apt-get", f'echo "$*" >>{log}\ncase "$*" in *chromium*) exit 100 ;; esac'
    )
    announced = tools(checkout, user=0)
    assert "installing these system packages" in announced
    assert "chromium" in announced
    alone = [line.split()[-1] for line in log.read_text().splitlines() if line.count(" ") == 4]
    assert {"chromium", "iperf3", "perftest"} <= set(alone)


def test_tools_missing_for_tests_are_listed_at_the_end(checkout):
    packages, root, data = tools(checkout, "--missing", user=1000).splitlines()
    assert "chromium" in packages
    assert "fio" not in packages
    assert "need root" in root
    assert "real data" in data


def test_real_data_is_reported_missing_only_if_it_is(checkout):
    (checkout.parent / "shared/data").mkdir(parents=True)
    assert "real data" not in tools(checkout, "--missing", user=0)


def test_root_is_reported_missing_only_if_it_is(checkout):
    assert "need root" not in tools(checkout, "--missing", user=0)
