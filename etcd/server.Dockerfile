# An etcd member: the server that the twin's toolchain builds as one static program.
FROM scratch
COPY build/bin/etcd /usr/local/bin/etcd
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/etcd"]
