# One image for every process of Flotilla; docker-compose.yml says which command runs in which container.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY flotilla flotilla
COPY console console
COPY registry registry
COPY workers workers
COPY serving_node serving_node
COPY conversion conversion
COPY signatures signatures
COPY templates templates
COPY static static
RUN python -m venv /opt/flotilla \
    && /opt/flotilla/bin/pip install --no-cache-dir -c constraints.txt ".[console,node,onnx,signing]"
# The node's modules as machine code. What compiles them lies in an environment of its own and stays behind.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
    && python -m venv /opt/compiler \
    && /opt/compiler/bin/pip install --no-cache-dir -c constraints.txt "mypy[mypyc]" setuptools \
    && PYTHONPATH=$(echo /opt/compiler/lib/python3.*/site-packages) /opt/flotilla/bin/python -m serving_node compile

FROM python:3.11-slim-bookworm
RUN useradd --system --create-home --home-dir /var/lib/flotilla --shell /usr/sbin/nologin flotilla
COPY --from=build /opt/flotilla /opt/flotilla
ENV PATH=/opt/flotilla/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    DJANGO_SETTINGS_MODULE=console.settings \
    FLOTILLA_DATA_DIR=/var/lib/flotilla
USER flotilla
WORKDIR /var/lib/flotilla
EXPOSE 7070 8000 8001 8002
CMD ["flotilla", "--help"]
