# Two images from one source: `site` (web, workers, beat) and `blockserver` (bootstrap peers, block servers, gateway).
#   docker build --target site -t sepal-site .
#   docker build --target blockserver -t sepal-blockserver .

FROM python:3.11-slim AS base
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
RUN useradd --create-home --uid 10001 sepal
WORKDIR /app
COPY pyproject.toml constraints.txt README.md ./

FROM base AS source
COPY swarm swarm
COPY monitor monitor
COPY coordinator coordinator
COPY blockserver blockserver
COPY templates templates
COPY manage.py .
COPY deploy/docker/join.py deploy/docker/healthcheck.py deploy/docker/

# One site image: the crawl worker needs hivemind, which brings torch; the web process loads neither.
FROM source AS site
RUN pip install -c constraints.txt torch==2.13.0 && pip install -c constraints.txt -e '.[crawler]'
RUN install -d -o sepal -g sepal /state /swarm
USER sepal
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
CMD ["python", "-m", "coordinator.web", "--host", "0.0.0.0", "--port", "8000"]

FROM source AS blockserver
RUN pip install -c constraints.txt torch==2.13.0 && pip install -c constraints.txt -e '.[gateway,quantisation]'
RUN install -d -o sepal -g sepal /state /swarm
USER sepal
EXPOSE 31337
# With SEPAL_METRICS_PORT set, a server is well when it is ONLINE; without, while it runs.
HEALTHCHECK --interval=30s --timeout=5s --start-period=300s CMD ["python", "deploy/docker/healthcheck.py"]
CMD ["sepal", "--help"]
