# What prolog.sh and epilog.sh need to know. Copy all three into one folder on the machine of
# slurmctld, such as /etc/anubis/slurm/, and change this one. Slurm gives its scripts next to no
# environment: whatever Anubis needs is said here.

# The command of Anubis, and the cluster: a file, or its name in the history.
ANUBIS=/opt/anubis/.venv/bin/anubis
CLUSTER=prod

# Whether a job may begin where Anubis does not know: run, or wait. It does not know when it is
# silent (dead, hung, misinstalled), when its answer is "unknown", and when it is asked wrongly (by a
# setting in this file): the system's log (anubis-prolog) names that mistake, as it holds for all jobs.
#   run   the job begins as if there were no gate
#   wait  Slurm puts the job back, and tries again two minutes later at the earliest
WHEN_UNKNOWN=run

# Who keeps the fleet, where tests are jobs of Slurm (start: slurm): jobs called anubis-test of this
# user are tests. They have no gate, and their end is no event.
KEEPER=$(id -un)
is_test() { [ "$SLURM_JOB_NAME" = anubis-test ] && [ "$SLURM_JOB_USER" = "$KEEPER" ]; }

# How long Anubis may take for its answer. Slurm's own PrologEpilogTimeout must be longer.
DEADLINE_S=8

# Tests that the gate may run before the job, as a time on each node. No test fits into 1s: then the
# history alone answers, in about a second. A longer budget needs a longer deadline.
BUDGET=1s

# How far the gate looks ahead for a job without a limit of time.
LONGEST=24h

# Where the history is, whose Slurm it is, and where commands are.
export ANUBIS_HOME=/var/lib/anubis
# export ANUBIS_HISTORY=postgresql://anubis@db.example/anubis
# export SLURM_CONF=/etc/slurm/slurm.conf
export PATH=/usr/local/bin:/usr/bin:/bin
