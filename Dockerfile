# labkit with its lessons in JupyterLab; it listens on port 8888 and prints the address to open:
#   docker build --tag labkit .
#   docker run --rm --publish 8888:8888 --shm-size 2g labkit
# On NVIDIA GPUs, with PyTorch's CUDA build:
#   docker build --tag labkit-cuda --build-arg TORCH_BUILDS=https://download.pytorch.org/whl/cu130 .
#   docker run --rm --gpus all --publish 8888:8888 --shm-size 8g labkit-cuda
# What you write is gone with the container, unless a folder is mounted: --volume "$PWD/mine:/lessons".
# The target `dev` is what .devcontainer builds: a checkout's tools, and no checkout.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim-bookworm AS dev
# The workspace is mounted, and `make setup` makes its environment there. Debian alone has these, at its own versions.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap chromium git iproute2 make sudo \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 --shell /bin/bash learner \
    && echo "learner ALL=(ALL) NOPASSWD:ALL" > /etc/sudoers.d/learner
USER 1000:1000

FROM python:${PYTHON}-slim-bookworm AS lab
ARG TORCH_BUILDS=https://download.pytorch.org/whl/cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
RUN useradd --create-home --uid 1000 --shell /bin/bash learner
WORKDIR /opt/labkit
# What labkit asks for, at the versions of the lock, without what only its tests and documentation need. The packages
# come before labkit itself, whose changes then cost no second download.
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY labkit/__init__.py labkit/
RUN pip install --extra-index-url "${TORCH_BUILDS}" --constraint requirements.lock . \
    && pip uninstall --yes labkit-torch
COPY labkit labkit
COPY notebooks labkit/course/notebooks
COPY .jupyter labkit/course/.jupyter
COPY solutions/[0-9]*.py labkit/course/solutions/
RUN pip install --no-deps . && rm -rf /opt/labkit && install --directory --owner 1000 --group 1000 /lessons
USER 1000:1000
WORKDIR /lessons
EXPOSE 8888
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8888/api')"]
CMD ["labkit", "lab", "--folder", ".", "--", "--ip=0.0.0.0", "--port=8888", "--no-browser"]
