# What health.sh needs to know. Copy both into one folder on every node, such as
# /etc/anubis/slurm/, and change this one. Slurm gives its scripts next to no environment.

# The command of Anubis on the nodes, and a folder for its configs.
ANUBIS=/opt/anubis/.venv/bin/anubis
export ANUBIS_HOME=/var/lib/anubis

# The service and the cluster's name there; and a file that only root may read, with a token:
#   anubis token make nodes --scope read,report
SERVICE=http://anubis.example:8750
CLUSTER=prod
TOKEN_FILE=/etc/anubis/token

# By which limits, under configs/policies/, and what else must be true of every node: mounts and
# ports of your site.
POLICY=default
FACTS="--seconds=0.5" # --mounts=/scratch --ports=mlx5_0,mlx5_1

# Of the suspicion: the tests that find this kind of trouble settle it.
CATEGORY=health

# This node's name in Slurm, where that is not its short host name, and where to remember what was
# told: a folder that a reboot empties.
# NODE=$(hostname)
STATE=/run
export PATH=/usr/local/bin:/usr/bin:/bin
