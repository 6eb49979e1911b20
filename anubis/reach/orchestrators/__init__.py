"""The owners of the nodes: Slurm, Kubernetes, or commands of a site's own."""
