# CoreDNS with the plugins that a cluster's own names need; one static program.
FROM scratch
COPY build/bin/coredns /coredns
USER 65532:65532
ENTRYPOINT ["/coredns"]
