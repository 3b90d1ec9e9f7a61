# Python, for the pods of tests.
ARG BASE_IMAGE=python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
FROM ${BASE_IMAGE}
USER 65532:65532
