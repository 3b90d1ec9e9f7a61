# Holds a pod's namespaces open.
FROM scratch
COPY build/bin/pause /pause
USER 65535:65535
ENTRYPOINT ["/pause"]
