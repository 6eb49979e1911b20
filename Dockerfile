# Anubis, its programs and Ray, for a pod or a container on a node (configs/kubernetes/):
#   docker build -t registry.example.com/anubis:1.0.0rc1 .
# It runs as the user anubis (10001). On nodes it needs root for InfiniBand, locked memory and the kernel's log, so the pods
# of configs/kubernetes/ that measure ask for that themselves. Packages come from where pip, uv and apt are configured to look.
# Python's packages are those of requirements.lock, compared with its hashes; torch differs by its build and is in no lock.
#   --build-arg TORCH_BACKEND=auto           torch with CUDA, several gigabytes: for nodes with GPUs
#   --build-arg TORCH_BACKEND= --build-arg TORCH=torch==2.13.0+cpu
#                                            torch from where uv is configured to look
#   --build-arg BASE=python:3.13-slim@...    another Python on a Debian or Ubuntu
ARG BASE=python:3.12.14-slim-trixie@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

FROM $BASE AS packages
WORKDIR /src
COPY requirements.lock .
RUN sed -n '/^uv==/,/[^\\]$/p' requirements.lock >uv.txt && \
    pip install --no-cache-dir --disable-pip-version-check --root-user-action ignore --no-deps --require-hashes -r uv.txt
ENV VIRTUAL_ENV=/opt/anubis UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1 \
    UV_CONSTRAINT=requirements.lock UV_BUILD_CONSTRAINT=requirements.lock UV_REQUIRE_BUILD_HASHES=1
RUN uv venv --python python3 /opt/anubis
ARG TORCH=torch==2.13.0
ARG TORCH_BACKEND=cpu
RUN uv pip install ${TORCH_BACKEND:+--torch-backend "$TORCH_BACKEND"} "$TORCH"
COPY . .
RUN uv pip install ".[postgresql,kubernetes]" && rm -f /opt/anubis/.lock # which everybody may write

FROM $BASE
RUN apt-get update && apt-get install -y --no-install-recommends \
      fio iproute2 openssh-client perftest infiniband-diags rdma-core ucx-utils && \
    rm -rf /var/lib/apt/lists/*
COPY --from=packages /opt/anubis /opt/anubis
RUN groupadd --gid 10001 anubis && useradd --system --uid 10001 --gid anubis --home-dir /var/lib/anubis --create-home anubis && chmod 0700 /var/lib/anubis
USER 10001
ENV PATH=/opt/anubis/bin:$PATH ANUBIS_HOME=/var/lib/anubis RAY_USAGE_STATS_ENABLED=0 PYTHONUNBUFFERED=1
VOLUME /var/lib/anubis
# Whether the service answers, if this container is one; pods have probes of their own (configs/kubernetes/).
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-c", "import re, ssl, urllib.request as web; words = open('/proc/1/cmdline').read(); port = re.search('--port[=\\0]([0-9]+)', words); s = 's' * ('\\0--certificate' in words); tls = web.HTTPSHandler(context=ssl._create_unverified_context()); '\\0serve\\0' in words and web.build_opener(web.ProxyHandler({}), tls).open(f'http{s}://127.0.0.1:{port[1] if port else 8750}/healthz', timeout=5)"]
CMD ["anubis", "--help"]
