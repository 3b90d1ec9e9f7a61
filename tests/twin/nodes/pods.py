"""Pods that run a few lines of Python on a certain machine, and what became of them."""

from twin.nodes.api import ApiError

IMAGE = "localhost/everstep/controller:local"  # any that holds Python
PODS = "/api/v1/namespaces/default/pods"


def pod(name, machine, script, *, volumes=None, account="default", host_network=False):
    """Return a pod; `volumes` are claims by the paths where they are mounted."""
    claims = volumes or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": machine,
            "restartPolicy": "Never",
            "serviceAccountName": account,
            "hostNetwork": host_network,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "python",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", script],
                    "securityContext": {"runAsUser": 1000},
                    "volumeMounts": [{"name": c, "mountPath": p} for p, c in claims.items()],
                }
            ],
            "volumes": [
                {"name": claim, "persistentVolumeClaim": {"claimName": claim}}
                for claim in claims.values()
            ],
        },
    }


def start(api, wanted):
    remove(api, wanted["metadata"]["name"])
    api.post(PODS, wanted)


def remove(api, name):
    """Take a pod away at once; one that is not there is fine."""
    api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def phase(api, name):
    try:
        return api.get(f"{PODS}/{name}")["status"].get("phase")
    except ApiError:
        return None


def events_of(api, name):
    """Return what the kubelet and others have noted about a pod."""
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}"
    return " ".join(event["message"] for event in api.get(path)["items"])


def said(twin, machine, name):
    """Return what a pod has printed, from the machine's disk: the API server gives it as plain text."""
    logs = (twin.layout.machine(machine).logs / "pods").glob(f"default_{name}_*/python/*.log")
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [line.split(" ", 3)[3] for line in lines]
