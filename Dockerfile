# Anubis, its programs and Ray, for a pod or a container on a node (configs/kubernetes/):
#   docker build -t registry.example.com/anubis:0.1.0 .
# With TORCH=torch==2.13.0 (the default) the package index's build with CUDA is taken, several gigabytes; a
# container without GPUs gets by with --build-arg INDEX=https://download.pytorch.org/whl/cpu.
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
      fio iproute2 openssh-client perftest infiniband-diags rdma-core ucx-utils && \
    rm -rf /var/lib/apt/lists/*
ARG TORCH=torch==2.13.0
ARG INDEX=https://pypi.org/simple
RUN pip install --no-cache-dir --index-url "$INDEX" "$TORCH"
COPY . /src
RUN pip install --no-cache-dir --constraint /src/requirements.lock "/src[postgresql,kubernetes]" && rm -rf /src
ENV ANUBIS_HOME=/var/lib/anubis RAY_USAGE_STATS_ENABLED=0 PYTHONUNBUFFERED=1
VOLUME /var/lib/anubis
CMD ["anubis", "--help"]
