"""The jobs that are due for a look."""

from anubis.core.watch.rounds import EARLY_S, KeptLook, WatchedJob, due_jobs, gone_jobs

NODES = ("n1", "n2", "n3", "n4")


def job(id, ended_at=None):
    return WatchedJob(id=id, nodes=NODES, ended_at=ended_at)


def seen(id, at, **more):
    return KeptLook(job=id, at=at, nodes=4, **more)


def due(jobs, looks, now):
    by_job = {look.job: look for look in looks}
    return [entry.id for entry in due_jobs(jobs, by_job, now, interval_s=480, pull_s=900)]


def test_a_running_job_is_looked_at_every_interval():
    looks = [seen("a", at=1000)]
    assert due([job("a")], [], 1000) == ["a"]
    assert due([job("a")], looks, 1000 + 480 - EARLY_S - 1) == []
    assert due([job("a")], looks, 1000 + 480 - EARLY_S) == ["a"]
    assert due([job("a")], looks, 900) == ["a"], "the look was dated by a wrong clock"


def test_the_job_left_alone_for_longest_comes_first():
    looks = [seen("a", at=500), seen("b", at=100)]
    assert due([job("a"), job("b"), job("c")], looks, 2000) == ["c", "b", "a"]


def test_a_job_that_ended_is_looked_at_once_more_and_then_never():
    assert due([job("a", ended_at=1010)], [seen("a", at=1000)], 1020) == ["a"]
    assert due([job("a", ended_at=1010)], [seen("a", at=1020, job_ended=True)], 1030) == []


def test_a_job_that_ended_unexamined_is_examined_while_its_telemetry_lasts():
    assert due([job("a", ended_at=1010)], [], 1010 + 900) == ["a"]
    assert due([job("a", ended_at=1010)], [], 1010 + 901) == []


def gone(jobs, looks, now):
    return gone_jobs(jobs, looks, now, pull_s=900)


def test_looks_at_jobs_that_are_gone_do_not_stay_as_those_of_running_ones():
    assert gone([job("a")], [seen("a", at=0)], 1e9) == []
    assert gone([job("a", ended_at=1000)], [seen("a", at=990)], 1901) == ["a"]
    ended = seen("a", at=1001, job_ended=True)
    assert gone([job("a", ended_at=1000)], [ended], 80_000) == []
    assert gone([job("a", ended_at=1000)], [ended], 90_000) == ["a"]
    assert gone([], [seen("a", at=0)], 10) == ["a"]
