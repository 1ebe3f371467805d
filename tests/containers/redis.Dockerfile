# Debian's Redis on the base that the tests build from, laid out as in Redis' own image: where no registry can be reached.
ARG BASE
FROM ${BASE}
RUN apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends redis-server \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=redis --group=redis /data
