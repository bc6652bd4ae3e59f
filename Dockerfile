# The command `queue-activation` with everything it needs at run time: Python, Java and the jars.
# The first stage has a C compiler, and compiles part of the code.
FROM python:3.12-bookworm AS build
WORKDIR /src
# setuptools reads README.md. streaming/system/ivy.xml is a link to ivy.xml, and streaming/docs to docs.
COPY pyproject.toml setup.py README.md ivy.xml ./
COPY docs docs
COPY streaming streaming
COPY producers producers
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm

# Debian's JRE packages expect the folder for their manual pages, which slim images lack.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

ENV PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    QUEUE_ACTIVATION_CACHE=/opt/queue-activation

WORKDIR /src
# The largest package first, as a layer that a change of the code does not rebuild.
COPY constraints.txt ./
RUN pip install --constraint constraints.txt pyspark
COPY --from=build /wheels /wheels
RUN pip install --constraint constraints.txt "$(ls /wheels/*.whl)[dashboard]"

# Fetches the jars, verified by streaming/system/jars.sha256, so that the container needs no network for them. Makes the
# archive of Java's classes, for quick starts.
WORKDIR /
RUN queue-activation prepare

# A new named volume takes over the owner of the folder it is mounted on.
RUN useradd --create-home --uid 10001 queue-activation \
    && install --directory --owner queue-activation --group queue-activation /checkpoints
USER queue-activation
WORKDIR /home/queue-activation
ENTRYPOINT ["queue-activation"]
CMD ["--help"]
