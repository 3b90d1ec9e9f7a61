# Stands in for a Prometheus agent.
FROM scratch
COPY build/bin/stand-in /prometheus
USER 65535:65535
ENTRYPOINT ["/prometheus"]
