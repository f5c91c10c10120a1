# tfbert in a container. For a CPU, or for GPUs (the host needs NVIDIA's container toolkit):
#
#     docker build -t tfbert .
#     docker build -t tfbert:cuda --build-arg EXTRAS=cuda .
#
# Runs go to the volume /runs, as the user 1000:
#
#     docker run --rm -v "$PWD/runs:/runs" tfbert finetune --strategy=mirrored --output_dir=first
#
# The CUDA libraries come with TensorFlow's own packages, so both are built on the same base.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
ARG EXTRAS=""

# PID 1 has to pass signals on and to collect processes that ended. A run saves a checkpoint on SIGTERM.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY setup.py setup.cfg pyproject.toml README.md LICENSE ./
COPY flags flags
COPY tfbert tfbert
RUN python3 -m venv /opt/tfbert \
    && /opt/tfbert/bin/pip install --no-cache-dir ".${EXTRAS:+[$EXTRAS]}"

RUN useradd --create-home --uid 1000 tfbert && mkdir /runs && chown tfbert:tfbert /runs
# By its number, as Kubernetes cannot tell from a name that it is not root (runAsNonRoot).
USER 1000
ENV PATH=/opt/tfbert/bin:$PATH \
    PYTHONUNBUFFERED=1
VOLUME /runs
WORKDIR /runs
ENTRYPOINT ["tini", "--", "tfbert"]
CMD ["--help"]
