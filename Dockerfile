# samba-port without torch: docker build -t samba-port . && docker run --rm -v "$PWD:/work" samba-port analyze model.onnx
FROM python:3.11-slim
COPY . /source
RUN python -m pip install --no-cache-dir --constraint /source/constraints.txt '/source[html,trace]' \
    && rm -rf /source \
    && useradd --create-home porter
USER porter
WORKDIR /work
ENTRYPOINT ["samba-port"]
