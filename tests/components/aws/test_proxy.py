"""The HTTP proxy of EKS nodes: the files that their user data writes in a real shell."""

import subprocess
from base64 import b64decode
from email import message_from_string
from pathlib import Path

from components.aws.proxy import CA_PATH, SERVICES, VARIABLES_PATH, user_data_parts
from tests.components.aws.eks_stack import cluster_of, declare_eks, plain_stack
from tests.components.certificates import CA

PROXY = {
    "http": "http://proxy.example.org:3128",
    "noProxy": [".corp.example.org"],
    "trustedCa": CA,
}


def written_files(part: str, root: Path) -> dict[str, str]:
    """Run the boothook in a part of the user data with `root` as its root folder; return the files that it writes."""
    script = part.partition("\n\n")[2].replace(" /etc", f" {root}/etc")
    commands = script.replace("update-ca-trust", ":").replace("systemctl", ":")
    subprocess.run(["bash", "-e", "-c", commands], check=True, cwd=root)
    return {
        f"/{path.relative_to(root)}": path.read_text() for path in root.rglob("*") if path.is_file()
    }


def test_the_services_of_a_node_use_the_proxy_except_for_the_networks_of_the_cluster(
    tmp_path: Path,
) -> None:
    (part,) = user_data_parts(cluster_of(network={"proxy": PROXY}))

    files = written_files(part, tmp_path)

    variables = dict(line.split("=", 1) for line in files[VARIABLES_PATH].splitlines())
    assert variables["HTTPS_PROXY"] == variables["http_proxy"] == "http://proxy.example.org:3128"
    assert set(variables["NO_PROXY"].split(",")) >= {
        *("10.0.0.0/16", "172.20.0.0/16", "169.254.169.254", ".svc", ".cluster.local"),
        *(".s3.us-east-1.amazonaws.com", ".us-east-1.eks.amazonaws.com", ".corp.example.org"),
    }
    for service in SERVICES:
        drop_in = files[f"/etc/systemd/system/{service}.service.d/proxy.conf"]
        assert drop_in == f"[Service]\nEnvironmentFile={VARIABLES_PATH}\n"
    assert files[CA_PATH] == CA
    assert part.index(CA_PATH) < part.index("update-ca-trust")


def test_the_proxy_is_configured_before_nodeadm_runs() -> None:
    graph = declare_eks(cluster={"network": {"proxy": PROXY}})

    for template in graph.some_of_type("LaunchTemplate"):
        message = message_from_string(b64decode(template.inputs["userData"]).decode())
        kinds = [part.get_content_type() for part in message.walk()]
        assert kinds[:2] == ["multipart/mixed", "text/cloud-boothook"], template.name
        assert set(kinds[2:]) <= {"application/node.eks.aws"}, template.name


def test_nodes_without_a_proxy_have_no_boothook() -> None:
    for template in plain_stack().some_of_type("LaunchTemplate"):
        user_data = b64decode(template.inputs.get("userData", "")).decode()
        assert "cloud-boothook" not in user_data, "a change of the user data replaces every node"
