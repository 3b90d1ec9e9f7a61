"""The deliberate mistakes that the tests of the components and policies must catch."""

from dataclasses import dataclass

ALL_TESTS = ("tests/components", "tests/policy")
"""The tests of the components and policies."""


@dataclass(frozen=True)
class Mutation:
    """One deliberate mistake: the replacement of one string in one file.

    Attributes:
        description: description of the mistake.
        file: path from the root of the repository.
        old: the string to replace; it occurs exactly once.
        new: the replacement.
        tests: paths of tests; at least one test must fail.
    """

    description: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ALL_TESTS

    def applied_to(self, source: str) -> str:
        """Return the file's content with the mistake.

        Raises:
            ValueError: the file does not contain `old` exactly once.
        """
        if source.count(self.old) != 1:
            raise ValueError(
                f"{self.file} has {self.old!r} {source.count(self.old)} times instead of once: "
                f"update the mutation {self.description!r} in tests/mutation"
            )
        return source.replace(self.old, self.new)


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "EKS GPU nodes on demand",
        "components/aws/node_groups.py",
        "capacity=_capacity_type(settings),",
        'capacity="ON_DEMAND",',
    ),
    Mutation(
        "a metrics agent that may write to every workspace",
        "components/aws/metrics_agent.py",
        'actions=["aps:RemoteWrite"], resources=[workspace.arn]',
        'actions=["aps:RemoteWrite"], resources=["*"]',
    ),
    Mutation(
        "a metrics agent that starts before its identity",
        "components/aws/metrics_agent.py",
        "[account, *permissions]",
        "[account]",
    ),
    Mutation(
        "log groups of Container Insights that outlive the stack",
        "components/aws/container_insights.py",
        "self.child(depends_on=groups)",
        "self.child()",
    ),
    Mutation(
        "CloudWatch's add-on changes every Python program in the cluster",
        "components/aws/addons.py",
        '"monitorAllServices": False',
        '"monitorAllServices": True',
    ),
    Mutation(
        "system nodes on spot capacity",
        "components/aws/node_groups.py",
        'capacity="ON_DEMAND",\n        zones=config.zones',
        'capacity="SPOT",\n        zones=config.zones',
    ),
    Mutation(
        "GPU nodes spread over all zones, away from the file system",
        "components/aws/node_groups.py",
        "zones=[pool.zone],",
        "zones=[f'{pool.zone[:-1]}{letter}' for letter in 'ab'],",
    ),
    Mutation(
        "GPU nodes without the label that workers select",
        "components/aws/node_groups.py",
        'labels = {POOL_LABEL: GPU_POOL, ACCELERATOR_LABEL: "nvidia"}',
        'labels = {ACCELERATOR_LABEL: "nvidia"}',
    ),
    Mutation(
        "GPU taint that is only a preference",
        "components/aws/node_groups.py",
        'key=SPOT_TAINT_KEY, value=SPOT_TAINT_VALUE, effect="NO_SCHEDULE"',
        'key=SPOT_TAINT_KEY, value=SPOT_TAINT_VALUE, effect="PREFER_NO_SCHEDULE"',
    ),
    Mutation(
        "no start-up taint until the Lustre client is ready",
        "components/aws/node_groups.py",
        '        startup_taints=[f"{CSI_STARTUP_TAINT}:NoExecute"],\n',
        "",
    ),
    Mutation(
        "metadata service without tokens",
        "components/aws/node_groups.py",
        'http_tokens="required"',
        'http_tokens="optional"',
    ),
    Mutation(
        "metadata service reachable from pods on EKS nodes",
        "components/aws/node_groups.py",
        "http_put_response_hop_limit=1,",
        "http_put_response_hop_limit=2,",
    ),
    Mutation(
        "unencrypted disks",
        "components/aws/node_groups.py",
        'encrypted="true"',
        'encrypted="false"',
    ),
    Mutation(
        "node groups that do not wait for the policies of their role",
        "components/aws/node_groups.py",
        "depends_on=[*self._role.policies, *(efa.prerequisites if efa else ())],",
        "depends_on=[*(efa.prerequisites if efa else ())],",
    ),
    Mutation(
        "desired size not ignored with an autoscaler",
        "components/aws/node_groups.py",
        "ignore_changes=[DESIRED_SIZE] if self._args.autoscaling else [],",
        "ignore_changes=[],",
    ),
    Mutation(
        "desired size ignored without an autoscaler",
        "components/aws/node_groups.py",
        "ignore_changes=[DESIRED_SIZE] if self._args.autoscaling else [],",
        "ignore_changes=[DESIRED_SIZE],",
    ),
    Mutation(
        "GPU image without NVIDIA's driver",
        "components/aws/node_groups.py",
        "ami_type=GPU_AMI,\n        instance_types=settings",
        "ami_type=SYSTEM_AMI,\n        instance_types=settings",
    ),
    Mutation(
        "no repair of broken nodes",
        "components/aws/node_groups.py",
        "NodeGroupNodeRepairConfigArgs(enabled=True)",
        "NodeGroupNodeRepairConfigArgs(enabled=False)",
    ),
    Mutation(
        "fallback nodes not marked as on demand",
        "components/aws/node_groups.py",
        "labels={**spot.labels, CAPACITY_LABEL: ON_DEMAND},",
        "labels=spot.labels,",
    ),
    Mutation(
        "public API for all addresses",
        "components/aws/cluster.py",
        "public_access_cidrs=list(public_cidrs) or None",
        "public_access_cidrs=None",
    ),
    Mutation(
        "public API without authorized ranges",
        "components/aws/cluster.py",
        "endpoint_public_access=bool(public_cidrs)",
        "endpoint_public_access=True",
    ),
    Mutation(
        "no private API",
        "components/aws/cluster.py",
        "endpoint_private_access=True",
        "endpoint_private_access=False",
    ),
    Mutation(
        "Secrets not encrypted",
        "components/aws/cluster.py",
        'resources=["secrets"]',
        "resources=[]",
    ),
    Mutation(
        "encryption key without rotation",
        "components/aws/encryption.py",
        "enable_key_rotation=True",
        "enable_key_rotation=False",
    ),
    Mutation(
        "access configured by the aws-auth ConfigMap",
        "components/aws/cluster.py",
        'authentication_mode="API"',
        'authentication_mode="API_AND_CONFIG_MAP"',
    ),
    Mutation(
        "extended support enabled",
        "components/aws/cluster.py",
        'support_type="STANDARD"',
        'support_type="EXTENDED"',
    ),
    Mutation(
        "cluster created before its log group",
        "components/aws/cluster.py",
        "depends_on=[logs, *role.policies]",
        "depends_on=[*role.policies]",
    ),
    Mutation(
        "cluster that does not wait for the policies of its role",
        "components/aws/cluster.py",
        "depends_on=[logs, *role.policies]",
        "depends_on=[logs]",
    ),
    Mutation(
        "log group under a name that EKS does not use",
        "components/aws/cluster.py",
        'name=f"/aws/eks/{self._args.name}/cluster"',
        'name=f"/aws/eks/{self._args.name}"',
    ),
    Mutation(
        "EKS installs its own unpinned add-ons",
        "components/aws/cluster.py",
        "bootstrap_self_managed_addons=False",
        "bootstrap_self_managed_addons=True",
    ),
    Mutation(
        "administrators of one namespace only",
        "components/aws/cluster.py",
        'AccessPolicyAssociationAccessScopeArgs(type="cluster")',
        'AccessPolicyAssociationAccessScopeArgs(type="namespace", namespaces=["default"])',
    ),
    Mutation(
        "CSI driver may describe file systems of every region",
        "components/aws/addons.py",
        'conditions={"StringEquals": {"aws:RequestedRegion": region}}',
        "conditions={}",
    ),
    Mutation(
        "role that trusts the wrong service",
        "components/aws/addons.py",
        "service=POD_IDENTITY",
        'service="ec2.amazonaws.com"',
    ),
    Mutation(
        "add-on created before the policies of its role",
        "components/aws/addons.py",
        "depends_on=role.policies if role else ()",
        "depends_on=()",
    ),
    Mutation(
        "ports of the file system not open to the nodes",
        "components/aws/fsx.py",
        '            *self._allow("nodes", group.id, nodes, ingress=True),\n',
        "",
    ),
    Mutation(
        "servers cannot connect to the nodes",
        "components/aws/fsx.py",
        '            *self._allow("to-nodes", nodes, group.id, ingress=True, peer="the file system"),\n',
        "",
    ),
    Mutation(
        "SCRATCH file system with a throughput",
        "components/aws/fsx.py",
        "config.throughput or MIN_THROUGHPUT if persistent else None",
        "config.throughput or MIN_THROUGHPUT",
    ),
    Mutation(
        "production file system without protection",
        "components/aws/fsx.py",
        "opts=self.child(depends_on=rules, protect=protect, timeout=CREATE_TIMEOUT)",
        "opts=self.child(depends_on=rules)",
    ),
    Mutation(
        "file system before its network rules",
        "components/aws/fsx.py",
        "opts=self.child(depends_on=rules, protect=protect, timeout=CREATE_TIMEOUT)",
        "opts=self.child(protect=protect)",
    ),
    Mutation(
        "volume without the mount name",
        "components/aws/fsx.py",
        'volume_attributes={"dnsname": dns_name, "mountname": mount_name}',
        'volume_attributes={"dnsname": dns_name}',
    ),
    Mutation(
        "nothing is exported to the bucket",
        "components/aws/fsx.py",
        "auto_export_policy=fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(\n"
        "                    events=list(EVENTS)\n                ),",
        "",
    ),
    Mutation(
        "folders that workers cannot write", "components/aws/fsx.py", '"0040770"', '"0040500"'
    ),
    Mutation(
        "volume mounted before its security group rules exist",
        "components/aws/fsx.py",
        "prerequisites = (system, association, *node_rules)",
        "prerequisites = (system, association)",
    ),
    Mutation(
        "no DNS names in the VPC",
        "components/aws/network.py",
        "enable_dns_hostnames=True",
        "enable_dns_hostnames=False",
    ),
    Mutation(
        "private subnet in no zone",
        "components/aws/network.py",
        "availability_zone=zone,\n            cidr_block=blocks.private",
        "cidr_block=blocks.private",
    ),
    Mutation(
        "S3 through the paid NAT gateway",
        "components/aws/network.py",
        "route_table_ids=[table.id for table in tables]",
        "route_table_ids=[]",
    ),
    Mutation(
        "NAT gateway created before the internet gateway",
        "components/aws/network.py",
        "opts=self.child(depends_on=[route, association])",
        "opts=self.child()",
    ),
    Mutation(
        "private subnets without an egress route",
        "components/aws/network.py",
        "return table, (route, association)",
        "return table, (association,)",
    ),
    Mutation(
        "AKS GPU pool on demand",
        "components/azure/node_pools.py",
        'scale_set_priority="Spot" if pool.spot else "Regular"',
        'scale_set_priority="Regular"',
    ),
    Mutation(
        "evicted machines kept, with their quota",
        "components/azure/node_pools.py",
        'scale_set_eviction_policy="Delete" if pool.spot else None',
        'scale_set_eviction_policy="Deallocate" if pool.spot else None',
    ),
    Mutation(
        "spot taint not declared, so it drifts",
        "components/azure/node_pools.py",
        "node_taints=[taint_text(taint_of(pool))]",
        "node_taints=[]",
    ),
    Mutation(
        "spot label not declared, so it drifts",
        "components/azure/node_pools.py",
        "{AZURE_SPOT_LABEL: AZURE_SPOT} if pool.spot else",
        "{} if pool.spot else",
    ),
    Mutation(
        "surge on a spot pool",
        "components/azure/node_pools.py",
        "    if pool.spot:\n        return None\n",
        "",
    ),
    Mutation(
        "workers that do not tolerate the spot taint",
        "components/azure/node_pools.py",
        "tolerations=[AKS_SPOT_TAINT, GPU_TAINT]",
        "tolerations=[GPU_TAINT]",
    ),
    Mutation(
        "system pool without a taint",
        "components/azure/node_pools.py",
        "node_taints=[taint_text(SYSTEM_TAINT)]",
        "node_taints=[]",
    ),
    Mutation(
        "system pods that do not tolerate their pool",
        "components/azure/node_pools.py",
        "tolerations=[SYSTEM_TAINT])",
        "tolerations=[])",
    ),
    Mutation(
        "priorities in reverse order",
        "components/azure/node_pools.py",
        "enumerate(reversed(pools), start=1)",
        "enumerate(pools, start=1)",
    ),
    Mutation(
        "GPU pool that never scales to zero",
        "components/azure/node_pools.py",
        "min_count=pool.min_nodes if autoscaled else None",
        "min_count=1 if autoscaled else None",
    ),
    Mutation(
        "maximum price not set",
        "components/azure/node_pools.py",
        "spot_max_price=pool.settings.max_price if pool.spot else None",
        "spot_max_price=None",
    ),
    Mutation(
        "public addresses on GPU nodes",
        "components/azure/node_pools.py",
        "            vnet_subnet_id=self._args.subnet_id,\n            enable_node_public_ip=False",
        "            vnet_subnet_id=self._args.subnet_id,\n            enable_node_public_ip=True",
    ),
    Mutation(
        "account keys allowed",
        "components/azure/blob.py",
        "allow_shared_key_access=False",
        "allow_shared_key_access=True",
    ),
    Mutation(
        "public containers allowed",
        "components/azure/blob.py",
        "allow_blob_public_access=False",
        "allow_blob_public_access=True",
    ),
    Mutation(
        "old TLS allowed",
        "components/azure/blob.py",
        'minimum_tls_version="TLS1_2"',
        'minimum_tls_version="TLS1_0"',
    ),
    Mutation(
        "storage open to every network",
        "components/azure/blob.py",
        "default_action=storage.DefaultAction.DENY",
        "default_action=storage.DefaultAction.ALLOW",
    ),
    Mutation(
        "no atomic rename: account without a hierarchical namespace",
        "components/azure/blob.py",
        "is_hns_enabled=True",
        "is_hns_enabled=False",
    ),
    Mutation(
        "production data without protection",
        "components/azure/blob.py",
        "keep = self._args.protect or self._config.keep",
        "keep = self._config.keep",
    ),
    Mutation(
        "token for the wrong audience",
        "components/azure/identity.py",
        'AUDIENCE = "api://AzureADTokenExchange"',
        'AUDIENCE = "api://AzureADToken"',
    ),
    Mutation(
        "identity that trusts a ServiceAccount of another namespace",
        "components/azure/blob.py",
        "serviceaccount:{JOB_NAMESPACE}:",
        "serviceaccount:default:",
    ),
    Mutation(
        "pods that read data may write them",
        "components/azure/data_access.py",
        "BuiltInRole.STORAGE_BLOB_DATA_READER,",
        "BuiltInRole.STORAGE_BLOB_DATA_CONTRIBUTOR,",
    ),
    Mutation(
        "role on a container not awaited",
        "components/azure/data_access.py",
        "prerequisites=(role, *trust)",
        "prerequisites=(*trust,)",
    ),
    Mutation(
        "data preparation without the label of its identity",
        "components/job/data_prep.py",
        "**(args.access.pod_labels if args.access else {}),",
        "",
    ),
    Mutation(
        "reader role for writers",
        "components/azure/roles.py",
        'STORAGE_BLOB_DATA_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"',
        'STORAGE_BLOB_DATA_CONTRIBUTOR = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"',
    ),
    Mutation(
        "role assigned to a group instead of an identity",
        "components/azure/roles.py",
        '"Group" if to_group else "ServicePrincipal"',
        '"Group"',
    ),
    Mutation(
        "etcd closed to the controller",
        "components/platform/network.py",
        "peers=[_pods(pods) for pods in clients.values()],",
        "peers=[_pods(WORKER)],",
    ),
    Mutation(
        "etcd open to all pods",
        "components/platform/network.py",
        "peers=[_pods(pods) for pods in clients.values()],",
        "peers=[_any_pod()],",
    ),
    Mutation(
        "workers cannot connect to each other",
        "components/platform/network.py",
        '        AllowRule(name="workers-from-workers", pods=WORKER, egress=False, peers=peers),\n',
        "",
    ),
    Mutation(
        "no DNS for workers",
        "components/platform/network.py",
        '        "workers": WORKER,\n        "controller": CONTROLLER,\n',
        '        "controller": CONTROLLER,\n',
    ),
    Mutation(
        "metadata service open to pods that may reach all addresses",
        "components/platform/network.py",
        "except_=[METADATA_SERVICE]",
        "except_=[]",
    ),
    Mutation(
        "no default deny for egress",
        "components/platform/network.py",
        'policy_types=["Ingress", "Egress"]',
        'policy_types=["Ingress"]',
    ),
    Mutation(
        "the monitor of the GPU exporters in the namespace of the job",
        "components/platform/monitoring.py",
        "operator_objects.gpu_monitor(scraping), args.system_namespace",
        "operator_objects.gpu_monitor(scraping), args.namespace",
    ),
    Mutation(
        "monitors without the labels by which the operator selects them",
        "components/platform/operator_objects.py",
        '"labels": {**PART_OF, **operator_labels}',
        '"labels": {**PART_OF}',
    ),
    Mutation(
        "one endpoint for a pod of several processes",
        "components/platform/monitoring.py",
        "processes=max(1, config.job.gpus_per_worker)",
        "processes=1",
    ),
)
