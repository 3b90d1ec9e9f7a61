# Stands in for a Prometheus agent. As in the published image, the program is in /bin and /prometheus is left for its storage.
FROM scratch
COPY build/bin/stand-in /bin/prometheus
USER 65535:65535
ENTRYPOINT ["/bin/prometheus"]
