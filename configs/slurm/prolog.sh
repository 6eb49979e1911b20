#!/bin/sh
# PrologSlurmctld: asks Anubis whether the nodes of a job are good for it, before it begins.
# 0 lets the job begin. Anything else has Slurm put it back: it tries again two minutes later at the
# earliest, and on other nodes if these were drained by then. This drains nothing: anubis keep does,
# and never too many at once. What was answered stands in the job's AdminComment.
. "$(dirname "$0")/settings.sh"

is_test && exit 0 # Anubis tests nodes that it would give to no job

seconds() { # a limit as Slurm writes it (1-02:03:04, 02:03:04, 03:04) as Anubis does; else nothing
  echo "$1" | awk -F'[-:]' '
    !/^[0-9:-]+$/ { next }
    NF == 4 { print (($1 * 24 + $2) * 60 + $3) * 60 + $4 "s" }
    NF == 3 { print ($1 * 60 + $2) * 60 + $3 "s" }
    NF == 2 { print $1 * 60 + $2 "s" }'
}

limit=$(seconds "$(timeout 3 squeue --noheader --jobs="$SLURM_JOB_ID" --format=%l)")
answer=$(timeout --kill-after=1 "$DEADLINE_S" "$ANUBIS" gate "$SLURM_JOB_NODELIST" \
  --duration "${limit:-$LONGEST}" --budget "$BUDGET" --cluster "$CLUSTER" 2>&1)
case $? in
  124 | 137) answer="no answer within $DEADLINE_S s" ;;
  64) # Anubis was asked wrongly: no node is at fault, and every job would meet the same
    logger -t anubis-prolog "no job is looked at until this is mended: $(printf '%s' "$answer" | tail -n 1)" ;;
esac

# By its words: a command that is broken ends with 1, too.
sentence=$(printf '%s\n' "$answer" | grep -m 1 -E '^(go|no-go|unknown)[:,]')
case $sentence in
  go*) begins=run ;;
  no-go*) begins=wait ;;
  *) begins=$WHEN_UNKNOWN ;;
esac
sentence=$(printf '%s' "${sentence:-$(printf '%s' "$answer" | tail -n 1)}" | cut -c -200)
timeout 3 scontrol update jobid="$SLURM_JOB_ID" admincomment="anubis, $begins: $sentence"
[ "$begins" = run ]
