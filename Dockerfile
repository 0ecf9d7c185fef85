# The versions are pinned by tag; whoever mirrors images pins the digest of theirs with --build-arg BASE=...@sha256:...
ARG BASE=python:3.13.9-slim-trixie

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/cleave
COPY requirements/run.txt requirements/run.txt
RUN /opt/cleave/bin/python -m pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY app app
RUN /opt/cleave/bin/python -m pip install --no-cache-dir --no-deps --no-build-isolation . \
 && /opt/cleave/bin/python -m pip uninstall --yes --quiet pip hatchling editables

FROM ${BASE}
RUN useradd --system --uid 10001 --home-dir /var/lib/cleave --create-home --shell /usr/sbin/nologin cleave
COPY --from=build /opt/cleave /opt/cleave
ENV PATH=/opt/cleave/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CLEAVE_DATABASE_URL=sqlite:////var/lib/cleave/cleave.db \
    CLEAVE_LOG_FORMAT=json
USER cleave
WORKDIR /var/lib/cleave
VOLUME /var/lib/cleave
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/livez', timeout=2)"]
# Inside of a container loopback can't be published, so the server listens on all of the container's addresses, and there
# are no tokens yet. Publish the port to a network that you trust only: docker run -p 127.0.0.1:8000:8000 ..
CMD ["cleave", "serve", "--host", "0.0.0.0", "--port", "8000", "--insecure"]
