#!/bin/sh
# HealthCheckProgram: has a node look at itself, and tells Anubis once what is outside the limits of
# a policy. That is a suspicion: a test confirms or refutes it when the node is idle. This only reads:
# it loads nothing, drains nothing and ends no job. It does not look where a campaign measures, nor
# where the service is silent: nobody could be told, and the node stays as it is.
. "$(dirname "$0")/health-settings.sh"

node=${NODE:-$(hostname -s)}
state=$STATE/anubis-health-$node

remark() { logger -t anubis-health "$1" || true; }

ask() { # the token on standard input, where no list of processes shows it
  printf 'header = "Authorization: Bearer %s"\n' "$(cat "$TOKEN_FILE")" |
    curl --config - --silent --max-time 4 "$@"
}

seen=$(ask --write-out '\n%{http_code}' "$SERVICE/v1/nodes/$CLUSTER/$node")
case $(printf '%s' "$seen" | tail -n 1) in
  200) printf '%s' "$seen" | grep -Eq '"holder": ?null' || exit 0 ;; # a campaign measures here
  404) ;;                                                            # nothing is known of this node
  *) remark "not looked: no answer of $SERVICE to read who measures here"; exit 0 ;;
esac

# shellcheck disable=SC2086 # several words
outside=$(timeout --kill-after=1 45 "$ANUBIS" bench run node_health --limits "$POLICY" $FACTS)
case $? in
  0) rm -f "$state" "$state.told"; exit 0 ;;
  1) ;;
  *) outside= ;;
esac
[ -n "$outside" ] || { remark "could not look: try $ANUBIS bench run node_health"; exit 0; }

# The same facts are the same event for a day, however their values change.
facts=$(printf '%s\n' "$outside" | sed 's/: [^:]* instead of .*//')
if [ "$(tail -n +2 "$state" 2>/dev/null)" != "$facts" ] ||
  [ -z "$(find "$state" -mmin -1440)" ]; then
  rm -f "$state.told"
  digest=$(printf '%s' "$facts" | cksum | cut -d ' ' -f 1)
  printf 'health %s %s %s\n%s\n' "$node" "$(date +%s)" "$digest" "$facts" >"$state"
fi
[ ! -e "$state.told" ] || exit 0

reason=$(printf '%s' "$outside" | tr '\n' ';' | LC_ALL=C tr -cd '[:print:]' | cut -c -500 |
  sed 's/[\\"]/\\&/g')
event='{"event": "suspicion-raised", "nodes": ["'$node'"], "category": "'$CATEGORY'"'
event="$event, \"source\": \"HealthCheckProgram\", \"reason\": \"$reason\""
event="$event, \"cluster\": \"$CLUSTER\", \"id\": \"$(head -n 1 "$state")\"}"
if ask --fail --output /dev/null --header 'Content-Type: application/json' --data "$event" \
  "$SERVICE/v1/events"; then
  : >"$state.told"
else
  remark "not told, and tried again the next time: $reason"
fi
exit 0
