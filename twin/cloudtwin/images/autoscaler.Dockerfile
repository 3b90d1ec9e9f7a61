# Stands in for the cluster autoscaler.
FROM scratch
COPY build/bin/stand-in /cluster-autoscaler
USER 65535:65535
ENTRYPOINT ["/cluster-autoscaler"]
