#!/bin/sh
# EpilogSlurmctld: tells Anubis that a job has ended. It is only kept: the next anubis keep does the
# rest, such as the light check of the nodes that became idle. It delays no job and drains nothing.
. "$(dirname "$0")/settings.sh"

is_test && exit 0 # no user's work ended, and a check of it would be checked for ever

# As wait() has it, so it is not 0 also where a signal ended the job.
case ${SLURM_JOB_EXIT_CODE:-0} in 0) failed= ;; *) failed=--failed ;; esac

# shellcheck disable=SC2086 # no word where it went well
timeout --kill-after=1 "$DEADLINE_S" "$ANUBIS" tell job-ended "$SLURM_JOB_NODELIST" \
  --job "$SLURM_JOB_ID" --id "job $SLURM_JOB_ID ended" --cluster "$CLUSTER" --later $failed
exit 0
