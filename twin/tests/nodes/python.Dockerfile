# Python, for the pods of tests.
ARG BASE_IMAGE=python:3.13-slim
FROM ${BASE_IMAGE}
USER 65532:65532
