# Anubis, its programs and Ray, for a pod or a container on a node (configs/kubernetes/):
#   docker build -t registry.example.com/anubis:0.1.0 .
# It runs as the user anubis (10001). On nodes it needs root for InfiniBand, locked memory and the kernel's log, so the pods
# of configs/kubernetes/ that measure ask for that themselves. Packages come from where pip, uv and apt are configured to look.
#   --build-arg BASE=python:3.12-slim@sha256:...  the base by its digest, so that the same image is built tomorrow
#   --build-arg TORCH_BACKEND=auto                torch with CUDA, several gigabytes: for nodes with GPUs
ARG BASE=python:3.12-slim
FROM $BASE
RUN apt-get update && apt-get install -y --no-install-recommends \
      fio iproute2 openssh-client perftest infiniband-diags rdma-core ucx-utils && \
    rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir uv
ARG TORCH=torch==2.13.0
ARG TORCH_BACKEND=cpu
RUN uv pip install --system --no-cache --torch-backend "$TORCH_BACKEND" "$TORCH"
COPY . /src
RUN uv pip install --system --no-cache --constraint /src/requirements.lock "/src[postgresql,kubernetes]" && rm -rf /src
RUN useradd --system --uid 10001 --home-dir /var/lib/anubis --create-home anubis && chmod 0700 /var/lib/anubis
USER 10001
ENV ANUBIS_HOME=/var/lib/anubis RAY_USAGE_STATS_ENABLED=0 PYTHONUNBUFFERED=1
VOLUME /var/lib/anubis
CMD ["anubis", "--help"]
