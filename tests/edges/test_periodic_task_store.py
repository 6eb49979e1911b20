"""Records of periodic work, which one process does, after any end of the one before."""

from __future__ import annotations

import pytest

from anubis.core.keep.periodic_tasks import PeriodicTask, PeriodicTaskEnd, PeriodicTaskRecord
from anubis.core.records import ClusterIdentity
from anubis.store.history import History
from tests.patience import eventually

BEGINS = """
import sys, time
from anubis.store.history import History
with History.open(sys.argv[1]) as history:
    with history.cluster("prod").periodic_tasks.alone() as is_alone:
        print(is_alone, flush=True)
        time.sleep(60)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("server").new_database()
    return str(tmp_path / "history.sqlite")


def swept(due, end=PeriodicTaskEnd.DONE):
    return PeriodicTaskRecord(
        task=PeriodicTask.SWEEP, due=due, began=due + 1, ended=due + 2, end=end
    )


def test_the_last_record_of_a_task_is_the_one_due_last_and_a_failure_is_no_success(url):
    with History.open(url) as history:
        periodic_tasks = history.cluster("prod").periodic_tasks
        for record in (swept(3e5), swept(1e5), swept(4e5, PeriodicTaskEnd.FAILED)):
            periodic_tasks.write(record)
        open_ = PeriodicTaskRecord(task=PeriodicTask.RISK, due=9e5, began=9e5)
        periodic_tasks.write(open_)
        assert periodic_tasks.last(PeriodicTask.SWEEP) == swept(4e5, PeriodicTaskEnd.FAILED)
        assert periodic_tasks.successes() == {PeriodicTask.SWEEP: 3e5 + 2}
        assert periodic_tasks.last(PeriodicTask.RISK) == open_
        assert history.cluster("lab").periodic_tasks.last(PeriodicTask.SWEEP) is None


def test_a_record_written_again_replaces_the_first(url):
    with History.open(url) as history:
        periodic_tasks = history.cluster("prod").periodic_tasks
        periodic_tasks.write(PeriodicTaskRecord(task=PeriodicTask.SWEEP, due=1e5, began=2e5))
        periodic_tasks.write(swept(1e5))
        assert periodic_tasks.find(PeriodicTask.SWEEP, 1e5) == swept(1e5)


def test_one_process_does_the_work_of_a_cluster_and_another_one_after_it_was_killed(
    url, verbs, tmp_path
):
    program = tmp_path / "begins.py"
    program.write_text(BEGINS)
    with History.open(url) as history:
        periodic_tasks = history.cluster("prod").periodic_tasks
        with verbs.start([str(program), url], None, tmp_path) as first:
            assert first.stdout.readline() == "True\n"
            with periodic_tasks.alone() as is_alone:
                assert not is_alone
            with history.cluster("lab").periodic_tasks.alone() as is_alone:
                assert is_alone
            first.kill()

        def can_do_the_work() -> bool:
            with periodic_tasks.alone() as is_alone:
                return is_alone

        assert eventually(can_do_the_work)  # a server takes a moment to see that its client is gone


def test_a_cluster_that_gets_another_name_keeps_its_records(tmp_path):
    with History.open(str(tmp_path / "history.sqlite")) as history:
        history.clusters.enter(ClusterIdentity(name="prod"), 0.0, ["n1"])
        history.cluster("prod").periodic_tasks.write(swept(1e5))
        history.clusters.rename("prod", "live")
        assert history.cluster("live").periodic_tasks.last(PeriodicTask.SWEEP) == swept(1e5)
