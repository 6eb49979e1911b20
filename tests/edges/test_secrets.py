"""Passwords are never shown, programs get no secret of ours, and files are for their owner only."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from anubis.core.errors import ExecutorError, StoreError
from anubis.core.records import Campaign, CampaignKind, Plan, Policy
from anubis.reach.executors.guardian import remove_secrets
from anubis.reach.executors.ray_cluster import newly_staged
from anubis.store.history import History
from tests.edges.desk import Desk
from tests.edges.test_guardian import outcome_of, start


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host:notaport/db",
        "postgresql://me:hun@ter2@host:notaport/db",
        "mysql://me:hunter2@host/db",
        "mysql://host/db?password=hunter2",
        "mysql://host/db?a=1&sslpassword=hunter2&b=2",
        "postgresql://me@127.0.0.1:1/db?password=hunter2",
        "postgresql://me@127.0.0.1:1/db?sslpassword=hunter2",
        "postgresql://me:hunter2@127.0.0.1:1/db",
    ],
)
def test_the_password_of_a_url_is_never_said(url: str):
    with pytest.raises(StoreError) as refused:
        History.open(url)
    assert "ter2" not in str(refused.value)
    assert "***" in str(refused.value)


def test_a_program_gets_neither_our_history_nor_a_secret():
    ours = {
        "ANUBIS_HISTORY": "x",
        "PGPASSWORD": "x",
        "RAY_AUTH_TOKEN": "x",
        "SLURM_JWT": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "WANDB_API_KEY": "x",
        "https_proxy": "http://me:hunter2@proxy:3128",
    }
    its = {
        "PATH": "/bin",
        "NCCL_IB_HCA": "mlx5",
        "TOKENIZERS_PARALLELISM": "false",
        "http_proxy": "http://proxy:3128",
        "LD_LIBRARY_PATH": "/a:/b",
    }
    assert remove_secrets({**ours, **its}) == its


def test_variables_that_an_operator_sets_in_a_file_reach_the_program(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("ANUBIS_HISTORY", "postgresql://me:hunter2@host/db")
    monkeypatch.setenv("MY_TOKEN", "ours")
    outcome = outcome_of(start("env", env={"SITE_TOKEN": "given"}))
    assert "SITE_TOKEN=given" in outcome["stdout"]
    assert "ter2" not in outcome["stdout"]
    assert "MY_TOKEN" not in outcome["stdout"]


def test_stored_files_are_readable_by_their_owner_only(desk: Desk):
    table = desk.write(
        "i.csv", "node,category,start,end\nn1,gpu,2024-03-01T10:00,2024-03-01T12:00\n"
    )
    fabric = desk.write("f.csv", "node,switch\nn1,leaf1\nn2,leaf1\n")
    assert desk.run("history", "import", "incidents", str(table)).code == 0
    page = desk.folder / "page.html"
    assert desk.run("scan", "--draw", "--topology", str(fabric), "--html", str(page)).code == 0
    kept = [desk.home, *desk.home.rglob("*"), page]
    assert desk.history in kept
    assert {path.stat().st_mode & 0o077 for path in kept} == {0}


def test_a_history_that_was_made_by_a_notebook_is_for_its_owner_too(tmp_path: Path):
    with History.open(str(tmp_path / "new" / "h.sqlite")):
        pass
    assert (tmp_path / "new" / "h.sqlite").stat().st_mode & 0o077 == 0
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


@pytest.mark.long
def test_criteria_that_cannot_be_written_cost_neither_page_nor_exit_code(near: Desk):
    near.home.mkdir(exist_ok=True)
    (near.home / "criteria").write_text("a file, where the folder should be")
    page = near.folder / "page.html"
    done = near.ask("accept", "--suite", near.suite(near.flow()), "--html", str(page))
    assert done.code == 0, done.err
    assert "cannot write criteria" in done.err
    assert "anubis criteria learn --campaign" in done.err
    assert page.exists()


def test_a_campaign_is_driven_once_under_any_path_of_its_history(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "h.sqlite")
    campaign = Campaign(
        id="c",
        kind=CampaignKind.ACCEPT,
        plan=Plan(suite="s", nodes=(), phases=(), specs=()),
        policy=Policy(),
        executor="local",
        created_at=0.0,
    )
    with (
        History.open(str(tmp_path / "h.sqlite")) as here,
        History.open(f"sqlite:///{tmp_path / 'link'}") as there,
    ):
        here.campaigns.begin(campaign)
        with (
            here.campaigns.claim("c"),
            pytest.raises(StoreError, match="is being driven by"),
            there.campaigns.claim("c"),
        ):
            pass


def test_no_room_for_the_programs_of_a_ray_cluster_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("anubis.reach.executors.ray_cluster.stage", full)
    with pytest.raises(ExecutorError, match="No space left on device; free some space there"):
        newly_staged([])
    assert not list(tmp_path.iterdir())
