# CoreDNS with the plugins that resolve the names in a cluster; one static program.
FROM scratch
COPY build/bin/coredns /coredns
USER 65532:65532
ENTRYPOINT ["/coredns"]
