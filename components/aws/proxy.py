"""The HTTP proxy of EKS nodes, which their user data configures.

EKS has no proxy setting. The user data part is a boothook, since `nodeadm` calls the API of EC2 before shell scripts
of user data run. Source: AWS re:Post, "How can I automate the configuration of HTTP proxy for EKS containerd nodes?";
not tried on AWS. The proxy applies only to SERVICES: pods get no proxy variables.
"""

from base64 import b64encode

from components.aws.user_data import boothook
from components.config import EksConfig

SERVICES = ("nodeadm-config", "nodeadm-run", "containerd", "kubelet")
VARIABLES_PATH = "/etc/everstep-proxy.env"
CA_PATH = "/etc/pki/ca-trust/source/anchors/everstep-proxy.pem"


def user_data_parts(config: EksConfig) -> list[str]:
    """Return the parts of the user data of all nodes that configure the proxy; empty without a proxy."""
    proxy = config.network.proxy
    if proxy is None:
        return []
    no_proxy = ",".join(
        proxy.all_no_proxy(
            [
                config.network.cidr,
                config.network.service_cidr,
                f".s3.{config.region}.amazonaws.com",  # image layers and data, through the gateway endpoint
                f".{config.region}.eks.amazonaws.com",  # the API server, through its private endpoint
            ]
        )
    )
    values = {"HTTP_PROXY": proxy.http, "HTTPS_PROXY": proxy.for_https, "NO_PROXY": no_proxy}
    variables = {**values, **{name.lower(): value for name, value in values.items()}}
    files = {VARIABLES_PATH: "".join(f"{name}={value}\n" for name, value in variables.items())}
    drop_in = f"[Service]\nEnvironmentFile={VARIABLES_PATH}\n"
    files |= {f"/etc/systemd/system/{name}.service.d/proxy.conf": drop_in for name in SERVICES}
    if proxy.trusted_ca:
        files[CA_PATH] = proxy.trusted_ca
    commands = [_write(path, content) for path, content in files.items()]
    trust = ["update-ca-trust"] if proxy.trusted_ca else []
    return [boothook("\n".join(["#!/bin/bash", *commands, *trust, "systemctl daemon-reload", ""]))]


def _write(path: str, content: str) -> str:
    """Return the command that writes a file, in base64 so that the shell expands nothing."""
    folder, encoded = path.rpartition("/")[0], b64encode(content.encode()).decode()
    return f"mkdir -p {folder} && echo {encoded} | base64 --decode > {path}"
