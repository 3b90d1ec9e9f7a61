"""The deliberate mistakes: what a hurried reviewer would wave through."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """One change of one line.

    Attributes:
        what: the mistake, as one would admit it.
        file: where, from the root of the tree.
        old: what stands there; exactly once.
        new: what is put in its place.
    """

    what: str
    file: str
    old: str
    new: str

    def made_in(self, source: str) -> str:
        """Return the file with the mistake.

        Raises:
            ValueError: the file no longer has the line, or has it more than once.
        """
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.file} has {self.old!r} {source.count(self.old)} times, not once: "
                f"mend the mistake {self.what!r} in tests/mutation/mistakes.py"
            )
        return source.replace(self.old, self.new)


MISTAKES: tuple[Mistake, ...] = (
    Mistake(
        "EKS GPU nodes bought on demand",
        "components/cluster/eks_nodes.py",
        'capacity="SPOT" if spot else "ON_DEMAND",',
        'capacity="ON_DEMAND",',
    ),
    Mistake(
        "system nodes bought on the spot market",
        "components/cluster/eks_nodes.py",
        'capacity="ON_DEMAND",\n        zones=config.zones',
        'capacity="SPOT",\n        zones=config.zones',
    ),
    Mistake(
        "GPU nodes spread over all zones, away from the file system",
        "components/cluster/eks_nodes.py",
        "zones=[config.gpu_zone],",
        "zones=config.zones,",
    ),
    Mistake(
        "GPU nodes without the label that workers ask for",
        "components/cluster/eks_nodes.py",
        'labels = {POOL: GPU, ACCELERATOR: "nvidia"}',
        'labels = {ACCELERATOR: "nvidia"}',
    ),
    Mistake(
        "GPU taint that only asks nicely",
        "components/cluster/eks_nodes.py",
        'aws.eks.NodeGroupTaintArgs(key=SPOT_TAINT, value="true", effect="NO_SCHEDULE")',
        'aws.eks.NodeGroupTaintArgs(key=SPOT_TAINT, value="true", effect="PREFER_NO_SCHEDULE")',
    ),
    Mistake(
        "no start-up taint until the Lustre client is ready",
        "components/cluster/eks_nodes.py",
        '            aws.eks.NodeGroupTaintArgs(key=CSI_STARTUP_TAINT, effect="NO_EXECUTE"),\n',
        "",
    ),
    Mistake(
        "metadata service without tokens",
        "components/cluster/eks_nodes.py",
        'http_tokens="required"',
        'http_tokens="optional"',
    ),
    Mistake(
        "metadata out of the reach of pods on GPU nodes",
        "components/cluster/eks_nodes.py",
        "hops=2,",
        "hops=1,",
    ),
    Mistake(
        "unencrypted disks",
        "components/cluster/eks_nodes.py",
        'encrypted="true"',
        'encrypted="false"',
    ),
    Mistake(
        "node groups that do not wait for their role's rights",
        "components/cluster/eks_nodes.py",
        "after=[*self._role.rights, *efa],",
        "after=[*efa],",
    ),
    Mistake(
        "desired size taken back from the autoscaler",
        "components/cluster/eks_nodes.py",
        "ignore_changes=[DESIRED_SIZE] if self._config.autoscaling.enabled else [],",
        "ignore_changes=[],",
    ),
    Mistake(
        "desired size ignored although nothing scales",
        "components/cluster/eks_nodes.py",
        "ignore_changes=[DESIRED_SIZE] if self._config.autoscaling.enabled else [],",
        "ignore_changes=[DESIRED_SIZE],",
    ),
    Mistake(
        "GPU image without NVIDIA's driver",
        "components/cluster/eks_nodes.py",
        "images=GPU_AMI,\n        instance_types=config",
        "images=SYSTEM_AMI,\n        instance_types=config",
    ),
    Mistake(
        "no repair of broken nodes",
        "components/cluster/eks_nodes.py",
        "NodeGroupNodeRepairConfigArgs(enabled=True)",
        "NodeGroupNodeRepairConfigArgs(enabled=False)",
    ),
    Mistake(
        "fallback nodes not marked as on demand",
        "components/cluster/eks_nodes.py",
        "labels=labels if spot else {**labels, CAPACITY: ON_DEMAND},",
        "labels=labels,",
    ),
    Mistake(
        "public API for everybody",
        "components/cluster/eks.py",
        "public_access_cidrs=list(ranges) or None",
        "public_access_cidrs=None",
    ),
    Mistake(
        "public API although nobody was named",
        "components/cluster/eks.py",
        "endpoint_public_access=bool(ranges)",
        "endpoint_public_access=True",
    ),
    Mistake(
        "no private API",
        "components/cluster/eks.py",
        "endpoint_private_access=True",
        "endpoint_private_access=False",
    ),
    Mistake(
        "Secrets not encrypted",
        "components/cluster/eks.py",
        'resources=["secrets"]',
        "resources=[]",
    ),
    Mistake(
        "a key that is never rotated",
        "components/encryption.py",
        "enable_key_rotation=True",
        "enable_key_rotation=False",
    ),
    Mistake(
        "users from the ConfigMap",
        "components/cluster/eks.py",
        'authentication_mode="API"',
        'authentication_mode="API_AND_CONFIG_MAP"',
    ),
    Mistake(
        "extended support at six times the price",
        "components/cluster/eks.py",
        'support_type="STANDARD"',
        'support_type="EXTENDED"',
    ),
    Mistake(
        "cluster made before its log group",
        "components/cluster/eks.py",
        "after=[logs, *role.rights]",
        "after=[*role.rights]",
    ),
    Mistake(
        "cluster that does not wait for its role's rights",
        "components/cluster/eks.py",
        "after=[logs, *role.rights]",
        "after=[logs]",
    ),
    Mistake(
        "log group under a name that EKS does not use",
        "components/cluster/eks.py",
        'name=f"/aws/eks/{self._config.name}/cluster"',
        'name=f"/aws/eks/{self._config.name}"',
    ),
    Mistake(
        "EKS installs its own unpinned add-ons",
        "components/cluster/eks.py",
        "bootstrap_self_managed_addons=False",
        "bootstrap_self_managed_addons=True",
    ),
    Mistake(
        "administrators of one namespace only",
        "components/cluster/eks.py",
        'AccessPolicyAssociationAccessScopeArgs(type="cluster")',
        'AccessPolicyAssociationAccessScopeArgs(type="namespace", namespaces=["default"])',
    ),
    Mistake(
        "CSI driver may look at every file system",
        "components/cluster/eks_addons.py",
        "resources=[file_system]",
        'resources=["*"]',
    ),
    Mistake(
        "role trusted to the wrong service",
        "components/cluster/eks_addons.py",
        "service=POD_IDENTITY",
        'service="ec2.amazonaws.com"',
    ),
    Mistake(
        "add-on before its role has its rights",
        "components/cluster/eks_addons.py",
        "after=role.rights if role else ()",
        "after=()",
    ),
    Mistake(
        "file system's ports not open to the nodes",
        "components/storage/fsx.py",
        '            *self._let("nodes", group.id, nodes, receiving=True),\n',
        "",
    ),
    Mistake(
        "servers cannot call the nodes back",
        "components/storage/fsx.py",
        '            *self._let("to-nodes", nodes, group.id, receiving=True),\n',
        "",
    ),
    Mistake(
        "SCRATCH file system with a throughput",
        "components/storage/fsx.py",
        "config.throughput or LEAST_THROUGHPUT if persistent else None",
        "config.throughput or LEAST_THROUGHPUT",
    ),
    Mistake(
        "production file system without protection",
        "components/storage/fsx.py",
        "opts=self.child(after=rules, protect=protect)",
        "opts=self.child(after=rules)",
    ),
    Mistake(
        "file system before its network rules",
        "components/storage/fsx.py",
        "opts=self.child(after=rules, protect=protect)",
        "opts=self.child(protect=protect)",
    ),
    Mistake(
        "volume without the mount name",
        "components/storage/fsx.py",
        'volume_attributes={"dnsname": dns_name, "mountname": mount_name}',
        'volume_attributes={"dnsname": dns_name}',
    ),
    Mistake(
        "nothing is exported to the bucket",
        "components/storage/fsx.py",
        "auto_export_policy=aws.fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(\n"
        "                    events=list(EVENTS)\n                ),",
        "",
    ),
    Mistake(
        "folders that workers cannot write", "components/storage/fsx.py", '"0040770"', '"0040500"'
    ),
    Mistake(
        "volume mounted before its rules are there",
        "components/storage/fsx.py",
        "ready = (system, tie, *node_rules)",
        "ready = (system, tie)",
    ),
    Mistake(
        "no DNS names in the VPC",
        "components/network/vpc.py",
        "enable_dns_hostnames=True",
        "enable_dns_hostnames=False",
    ),
    Mistake(
        "private subnet in no zone",
        "components/network/vpc.py",
        "availability_zone=zone,\n            cidr_block=blocks.private",
        "cidr_block=blocks.private",
    ),
    Mistake(
        "S3 through the paid NAT gateway",
        "components/network/vpc.py",
        "route_table_ids=[table.id for table in tables]",
        "route_table_ids=[]",
    ),
    Mistake(
        "NAT gateway before there is a way out",
        "components/network/vpc.py",
        "opts=self.child(after=[route, association])",
        "opts=self.child()",
    ),
    Mistake(
        "private subnets without a route out",
        "components/network/vpc.py",
        "return table, (route, association)",
        "return table, (association,)",
    ),
    Mistake(
        "AKS GPU pool at full price",
        "components/cluster/aks_pools.py",
        'scale_set_priority="Spot" if pool.spot else "Regular"',
        'scale_set_priority="Regular"',
    ),
    Mistake(
        "evicted machines kept, with their quota",
        "components/cluster/aks_pools.py",
        'scale_set_eviction_policy="Delete" if pool.spot else None',
        'scale_set_eviction_policy="Deallocate" if pool.spot else None',
    ),
    Mistake(
        "spot taint left to AKS, to drift",
        "components/cluster/aks_pools.py",
        "node_taints=[taint_text(pool.taint)]",
        "node_taints=[]",
    ),
    Mistake(
        "spot label left to AKS, to drift",
        "components/cluster/aks_pools.py",
        '{SPOT_KEY: "spot"} if self.spot else',
        "{} if self.spot else",
    ),
    Mistake(
        "surge on a spot pool",
        "components/cluster/aks_pools.py",
        "    if pool.spot:\n        return None\n",
        "",
    ),
    Mistake(
        "workers that do not tolerate the spot taint",
        "components/cluster/aks_pools.py",
        "tolerations=[SPOT_TAINT, GPU_TAINT]",
        "tolerations=[GPU_TAINT]",
    ),
    Mistake(
        "system pool open to everything",
        "components/cluster/aks_pools.py",
        "node_taints=[taint_text(SYSTEM_TAINT)]",
        "node_taints=[]",
    ),
    Mistake(
        "system pods that do not tolerate their pool",
        "components/cluster/aks_pools.py",
        "tolerations=[SYSTEM_TAINT])",
        "tolerations=[])",
    ),
    Mistake(
        "priorities the wrong way round",
        "components/cluster/aks_pools.py",
        "enumerate(reversed(pools), start=1)",
        "enumerate(pools, start=1)",
    ),
    Mistake(
        "GPU pool that never shrinks to nothing",
        "components/cluster/aks_pools.py",
        "min_count=pool.least if scales else None",
        "min_count=1 if scales else None",
    ),
    Mistake(
        "price limit forgotten",
        "components/cluster/aks_pools.py",
        "spot_max_price=said.gpu_pool.max_price if pool.spot else None",
        "spot_max_price=None",
    ),
    Mistake(
        "public addresses on GPU nodes",
        "components/cluster/aks_pools.py",
        "            vnet_subnet_id=self._args.subnet_id,\n            enable_node_public_ip=False",
        "            vnet_subnet_id=self._args.subnet_id,\n            enable_node_public_ip=True",
    ),
    Mistake(
        "account keys allowed",
        "components/storage/blob.py",
        "allow_shared_key_access=False",
        "allow_shared_key_access=True",
    ),
    Mistake(
        "public containers allowed",
        "components/storage/blob.py",
        "allow_blob_public_access=False",
        "allow_blob_public_access=True",
    ),
    Mistake(
        "old TLS allowed",
        "components/storage/blob.py",
        'minimum_tls_version="TLS1_2"',
        'minimum_tls_version="TLS1_0"',
    ),
    Mistake(
        "storage open to every network",
        "components/storage/blob.py",
        "default_action=storage.DefaultAction.DENY",
        "default_action=storage.DefaultAction.ALLOW",
    ),
    Mistake(
        "no atomic rename: account without a hierarchy",
        "components/storage/blob.py",
        "is_hns_enabled=True",
        "is_hns_enabled=False",
    ),
    Mistake(
        "production data without protection",
        "components/storage/blob.py",
        "            protect=self._args.protect,\n            retain_on_delete=self._args.protect,\n",
        "",
    ),
    Mistake(
        "token for the wrong audience",
        "components/storage/blob.py",
        'AUDIENCE = "api://AzureADTokenExchange"',
        'AUDIENCE = "api://AzureADToken"',
    ),
    Mistake(
        "identity of another namespace's account",
        "components/storage/blob.py",
        'NAMESPACE = "elastic-job"',
        'NAMESPACE = "default"',
    ),
    Mistake(
        "reader's role where writers are",
        "components/cluster/aks_roles.py",
        'STORAGE_BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"',
        'STORAGE_BLOB_DATA_CONTRIBUTOR = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"',
    ),
    Mistake(
        "role assigned to a group instead of an identity",
        "components/cluster/aks_roles.py",
        '"Group" if to_group else "ServicePrincipal"',
        '"Group"',
    ),
    Mistake(
        "etcd closed to the controller",
        "components/platform/network.py",
        "peers=[_pods(workers), _pods(controller)],",
        "peers=[_pods(workers)],",
    ),
    Mistake(
        "etcd open to everybody",
        "components/platform/network.py",
        "peers=[_pods(workers), _pods(controller)],",
        "peers=[_any_pod()],",
    ),
    Mistake(
        "workers cannot hear each other",
        "components/platform/network.py",
        '        Line(name="workers-from-workers", pods=workers, out=False, peers=[_pods(workers)]),\n',
        "",
    ),
    Mistake(
        "no DNS for workers",
        "components/platform/network.py",
        '("workers", workers),\n                ("controller", controller),\n'
        '                ("etcd", members),',
        '("controller", controller),\n                ("etcd", members),',
    ),
    Mistake(
        "metadata service open to the controller",
        "components/platform/network.py",
        "except_=[METADATA_SERVICE]",
        "except_=[]",
    ),
    Mistake(
        "no default deny for what leaves",
        "components/platform/network.py",
        'policy_types=["Ingress", "Egress"]',
        'policy_types=["Ingress"]',
    ),
)
