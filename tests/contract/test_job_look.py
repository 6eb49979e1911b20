"""The agent's looks at a job: whom it believes, as whom it looks, and that a look ends."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import telemetry.job_look
from telemetry.agent import looks_of, options
from telemetry.job_look import PLACE, Found, JobLooks, RefusedError, find, slurm_owner
from telemetry.page import AgentServer

from tests.patience import eventually

LOOK = b"\x1f\x8b a look"
PROC = Path("/proc")
SLEEPS = "import sys, time; sys.stdin.close(); time.sleep(100)"
BRINGS = rf"import sys; sys.stdout.buffer.write({LOOK!r})"
FLOODS = "import sys\nwhile True: sys.stdout.buffer.write(bytes(1 << 20))"
REFUSES = "import sys; sys.exit('anubis: error: no rank announced itself')"


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that no stranger could have made: the home is its owner's."""
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        yield Path(folder)


def looks(base: Path, program: str) -> JobLooks:
    (base / "4711").mkdir(mode=0o700)
    command = [sys.executable, "-c", program]
    return JobLooks("n1", str(base / PLACE), PROC, command)


def answer(looks: JobLooks, job: str = "4711") -> tuple[int, str | bytes]:
    """Return what the agent brings in the end."""

    def is_over() -> bool:
        return looks.answer("GET", job)[0] != 202

    assert eventually(is_over)
    status, _, content = looks.answer("GET", job)
    return status, content


def test_a_look_is_begun_once_and_then_fetched_repeatedly(base: Path):
    agent = looks(base, BRINGS)
    assert agent.answer("GET", "4711")[0] == 404
    assert agent.answer("POST", "4711")[0] == 202
    assert answer(agent) == answer(agent) == (200, LOOK)
    assert agent.answer("GET", "4712")[0] == 404


def test_a_job_of_kubernetes_has_a_folder_in_that_of_its_namespace(base: Path):
    (base / "research/Job/llama").mkdir(mode=0o700, parents=True)
    agent = looks(base, BRINGS)
    assert agent.answer("POST", "research%2FJob%2Fllama")[0] == 202
    assert answer(agent, "research%2FJob%2Fllama") == (200, LOOK)


def test_one_look_goes_on_at_a_time(base: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(telemetry.job_look, "LIMIT_S", 0.5)
    agent = looks(base, SLEEPS)
    assert [agent.answer("POST", job)[0] for job in ("4711", "4711", "4712")] == [202, 202, 409]
    assert answer(agent) == (500, "the look took more than 0.5 s\n")


@pytest.mark.parametrize(
    ("looking", "why"), [(FLOODS, "more than 8 MiB"), (REFUSES, "no rank announced itself")]
)
def test_the_reason_why_a_look_brought_nothing_is_the_answer(base: Path, looking: str, why: str):
    agent = looks(base, looking)
    agent.answer("POST", "4711")
    status, content = answer(agent)
    assert status == 500
    assert why in str(content)


@pytest.mark.parametrize("name", ["..", "a%2F..", "a%2F%2Fb", "%2Fa", "-x", "", "a b", "x" * 300])
def test_only_the_id_of_a_job_is_put_into_a_path(base: Path, name: str):
    assert looks(base, BRINGS).answer("POST", name)[0] == 400


def test_a_folder_that_a_stranger_could_have_made_is_not_looked_at(base: Path):
    agent = looks(base, BRINGS)
    base.chmod(0o1777)  # as /tmp, in which a stranger may come first
    assert agent.answer("POST", "4711")[0] == 403
    base.chmod(0o755)
    (base / "4712").symlink_to("4711")
    assert agent.answer("POST", "4712")[0] == 403
    assert agent.answer("POST", "4711")[0] == 202


def test_an_agent_without_roots_rights_looks_at_jobs_of_its_own_user_only(
    base: Path, monkeypatch: pytest.MonkeyPatch
):
    looks(base, BRINGS)
    owner = base.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    assert find("4711", str(base / PLACE), PROC).user == owner
    monkeypatch.setattr(
        telemetry.job_look, "folder_owner", lambda *_: Found(["--live", "x"], owner + 1, 0)
    )
    monkeypatch.setattr(os, "geteuid", lambda: owner + 2)
    with pytest.raises(RefusedError, match=f"of user {owner + 1}"):
        find("4711", str(base / PLACE), PROC)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look as another user")
def test_root_looks_as_the_owner_of_the_job(base: Path):
    base.chmod(0o755)
    (base / "4711").mkdir(mode=0o700)
    os.chown(base / "4711", 65534, 65534)
    says = ["/bin/sh", "-c", r'printf "\037\213"; id -u; id -G']
    agent = JobLooks("n1", str(base / PLACE), PROC, says)
    assert agent.answer("POST", "4711")[0] == 202
    assert answer(agent) == (200, b"\x1f\x8b65534\n65534\n")


SLURM = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n"
OLD_SLURM = "4:memory:/slurm/uid_1000/job_4711/step_0\n1:name=systemd:/\n"
PLANTED = "0::/user.slice/user-1001.slice/user@1001.service/slurmstepd.scope/job_4711\n"


def plant(proc: Path, pid: int, group: str, parent: int = 1, environment: bytes = b"") -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(group)
    (proc / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 1 1")
    (proc / str(pid) / "environ").write_bytes(environment)
    os.chown(proc / str(pid), *(2 * [max(1000, os.geteuid())]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")
@pytest.mark.parametrize("group", [SLURM, OLD_SLURM])
def test_a_job_without_a_folder_is_found_by_slurms_groups_not_by_those_of_a_user(
    tmp_path: Path, group: str
):
    plant(tmp_path, 50, PLANTED)
    with pytest.raises(RefusedError, match="no process"):
        slurm_owner("4711", tmp_path)
    plant(tmp_path, 60, group, parent=59)
    plant(tmp_path, 61, group, parent=60)
    assert slurm_owner("4711", tmp_path) == Found(["--pid", "59"], 1000, 1000)
    plant(tmp_path, 62, group, parent=60, environment=b"RANK=0\0ANUBIS_LIVE_DIR=/x\0")
    assert slurm_owner("4711", tmp_path) == Found(["--pid", "62"], 1000, 1000)
    with pytest.raises(RefusedError, match="no process"):
        slurm_owner("471", tmp_path)


def test_looks_need_a_token(base: Path):
    chosen = options().parse_args([f"--live={base}/{PLACE}"])
    with pytest.raises(SystemExit):
        looks_of(chosen, "")
    assert looks_of(argparse.Namespace(**{**vars(chosen), "live": None}), "") is None
    agent = looks_of(chosen, "token")
    for token, status in (("", 405), ("token", 401)):
        with AgentServer(("127.0.0.1", 0), list, lambda _: (), token, looks=agent) as server:
            assert server.answer(["POST", "/looks/4711", "HTTP/1.1"], {})[0] == status
