"""Credentials for third-party registries: Secrets in the namespaces, and their names in pods.

Nodes have their own credentials for a registry of their cloud. For another registry, the kubelet uses the
Secrets that a pod names in `imagePullSecrets`. A transformation adds them to every pod whose images come
from such a registry, including the template of an ElasticJob, from which its controller creates pods. No
component has to pass them on. The Secrets are not in ServiceAccounts: etcd and most DaemonSets use the
ServiceAccount `default` of their namespace, which the cluster creates and a program cannot declare.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes import core, meta

from components.component import Component, Transformation
from components.config.faults import ConfigFault, ConfigurationError
from components.config.registry_rules import LOGINS
from components.platform.pods import PART_OF
from everstep.catalog.image_reference import DEFAULT_DOMAIN, DEFAULT_DOMAIN_LOGIN, domain_of
from everstep.catalog.names import ELASTICJOB_KIND

SECRET = "everstep-registries"  # noqa: S105  name of the Secret
PASSWORDS = "registryPassword"
WORKLOADS = frozenset({"DaemonSet", "Deployment", "Job", "StatefulSet"})


@dataclass(frozen=True)
class RegistryLogin:
    """A user of a registry.

    Attributes:
        host: host of the registry, as in image references.
        user: name of the user.
        password: its password or token; a secret.
    """

    host: str
    user: str
    password: pulumi.Output[str]


def logins(users: Mapping[str, str], config: pulumi.Config) -> tuple[RegistryLogin, ...]:
    """Return the logins of a stack with their passwords, which are secrets of the stack.

    Args:
        users: host of a registry -> user.
        config: the keys `registryPassword:*` of the stack.

    Raises:
        ConfigurationError: a password is missing or not encrypted.
    """
    faults = [fault for host in users for fault in _password_faults(host, config)]
    if faults:
        raise ConfigurationError(faults)
    return tuple(
        RegistryLogin(host, user, config.require_secret(host)) for host, user in users.items()
    )


def _password_faults(host: str, config: pulumi.Config) -> list[ConfigFault]:
    """Return a fault if the password of a registry is missing or not encrypted."""
    key = f"{config.name}:{host}"
    fix = f"run: pulumi config set --secret {key}"
    if config.get(host) is None:
        return [ConfigFault(f"{LOGINS}.{host}", None, f"has no password: {key} is not set", fix)]
    if not pulumi.runtime.is_config_secret(key):
        rule = f"has a password in plaintext: {key} is not a secret"
        fix = f"{fix}; rotate the password if this file was ever committed"
        return [ConfigFault(f"{LOGINS}.{host}", None, rule, fix)]
    return []


@dataclass(frozen=True, kw_only=True)
class PullSecretArgs:
    """Arguments of a PullSecret.

    Attributes:
        logins: users of registries, with their passwords.
        namespace: namespace of the pods that use the logins.
    """

    logins: tuple[RegistryLogin, ...]
    namespace: pulumi.Input[str]


class PullSecret(Component):
    """The Secret with the logins of all registries, for the pods of one namespace."""

    def __init__(
        self, name: str, args: PullSecretArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("platform:PullSecret", name, opts)
        passwords = pulumi.Output.all(*(login.password for login in args.logins))
        content = passwords.apply(lambda values: docker_config(args.logins, values))
        core.v1.Secret(
            f"{name}-secret",
            metadata=meta.v1.ObjectMetaArgs(name=SECRET, namespace=args.namespace, labels=PART_OF),
            type="kubernetes.io/dockerconfigjson",
            # The content is a secret output, because the passwords are secret.
            string_data={".dockerconfigjson": content},
            opts=self.child(delete_before_replace=True),
        )
        self.register_outputs({})


def docker_config(logins: Iterable[RegistryLogin], passwords: Iterable[str]) -> str:
    """Return logins in the format of Docker's configuration file."""
    auths = {}
    for login, password in zip(logins, passwords, strict=True):
        host = DEFAULT_DOMAIN_LOGIN if login.host == DEFAULT_DOMAIN else login.host
        auth = base64.b64encode(f"{login.user}:{password}".encode()).decode()
        auths[host] = {"username": login.user, "password": password, "auth": auth}
    return json.dumps({"auths": auths})


def add_image_pull_secrets(hosts: Iterable[str]) -> Transformation:
    """Return the transformation that adds the pull Secret to the pods with images of these registries."""
    registries = frozenset(hosts)

    def transform(
        args: pulumi.ResourceTransformationArgs,
    ) -> pulumi.ResourceTransformationResult | None:
        kind = args.type_.rpartition(":")[2]
        spec: Any = args.props.get("spec")
        if kind in WORKLOADS:
            pod = spec.template.spec
            if registries & _domains([*(pod.init_containers or ()), *pod.containers]):
                pod.image_pull_secrets = [core.v1.LocalObjectReferenceArgs(name=SECRET)]
        elif kind == ELASTICJOB_KIND:
            pod = spec["replicaSpecs"]["Worker"]["template"]["spec"]
            if registries & _domains(pod["containers"]):
                pod["imagePullSecrets"] = [{"name": SECRET}]
        return pulumi.ResourceTransformationResult(args.props, args.opts)

    return transform


def _domains(containers: Iterable[Any]) -> set[str]:
    """Return the hosts of the registries of containers' images."""
    images = (
        container["image"] if isinstance(container, Mapping) else container.image
        for container in containers
    )
    return {domain_of(image) for image in images if isinstance(image, str)}
