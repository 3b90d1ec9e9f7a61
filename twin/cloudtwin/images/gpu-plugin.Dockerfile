# Stands in for the GPU device plugin.
FROM scratch
COPY build/bin/stand-in /nvidia-device-plugin
ENTRYPOINT ["/nvidia-device-plugin"]
