#!/bin/sh
# NAME: say in a line what is measured.
set -eu
samples=10

for word in "$@"; do
    case $word in
    --describe)
        cat <<'END'
{"schema": "anubis.describe/1", "name": "NAME", "version": "1",
 "summary": "How many processes a node starts in a second.",
 "stresses": "the kernel", "reveals": "a slow or overloaded host",
 "level": "micro", "scope": "node", "duration_s": 3,
 "metrics": [{"name": "starts_per_s", "unit": "1/s", "direction": "higher"}],
 "parameters": [{"name": "samples", "type": "int", "default": 10, "summary": "timed rounds",
  "counts": ["starts_per_s"]}]}
END
        exit ;;
    --smoke) samples=3 ;;
    --samples=*) samples=${word#*=} ;;
    *) echo "NAME has no option $word" >&2; exit 2 ;;
    esac
done

start_100() {
    for _ in 0 1 2 3 4 5 6 7 8 9; do
        for _ in 0 1 2 3 4 5 6 7 8 9; do env true; done
    done
}

begun=$(date +%s)
start_100 # warm-up
rates=
for _ in $(seq "$samples"); do
    before=$(date +%s%N)
    start_100
    rates="$rates, $((100 * 1000000000 / ($(date +%s%N) - before)))"
done
cat <<END
{"schema": "anubis.result/1", "benchmark": "NAME", "version": "1",
 "parameters": {"samples": $samples}, "environment": {"kernel": "$(uname -r)"},
 "started_at": $begun, "duration_s": $(($(date +%s) - begun)), "not_applicable": null,
 "series": [{"metric": "starts_per_s", "device": "cpu", "samples": [${rates#, }]}]}
END
