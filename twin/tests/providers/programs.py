"""Small programs for the twin's clouds: the minimal inputs of each service, in the order that it requires."""

EKS = """
import pulumi_aws as aws
here = aws.Provider("here", region="us-east-1", default_tags={"tags": {"owner": "me"}})
opts = Opts(provider=here)

def trust(service, *actions):
    statement = {"Effect": "Allow", "Action": ["sts:AssumeRole", *actions], "Principal": {"Service": service}}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})

def role(name, service, *policies):
    iam_role = aws.iam.Role(name, assume_role_policy=trust(service), opts=opts)
    attachments = [
        aws.iam.RolePolicyAttachment(
            f"{name}-{policy}", role=iam_role.name, policy_arn=f"arn:aws:iam::aws:policy/{policy}", opts=opts
        )
        for policy in policies
    ]
    return iam_role, attachments

vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", opts=opts)
gateway = aws.ec2.InternetGateway("gateway", vpc_id=vpc.id, opts=opts)
table = aws.ec2.RouteTable("table", vpc_id=vpc.id, opts=opts)
route = aws.ec2.Route(
    "route", route_table_id=table.id, destination_cidr_block="0.0.0.0/0", gateway_id=gateway.id, opts=opts
)
subnets, egress_routes = [], [route]
for number, zone in enumerate("ab"):
    subnets.append(aws.ec2.Subnet(
        f"subnet-{zone}", vpc_id=vpc.id, cidr_block=f"10.0.{number}.0/24",
        availability_zone=f"us-east-1{zone}", opts=opts,
    ))
    egress_routes.append(aws.ec2.RouteTableAssociation(
        f"route-{zone}", subnet_id=subnets[-1].id, route_table_id=table.id, opts=opts
    ))
control, control_policies = role("control", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
nodes, node_policies = role(
    "nodes", "ec2.amazonaws.com", "AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"
)
cluster = aws.eks.Cluster(
    "cluster", role_arn=control.arn, version="1.36", bootstrap_self_managed_addons=False,
    vpc_config={"subnet_ids": [subnet.id for subnet in subnets]},
    opts=Opts(provider=here, depends_on=control_policies),
)
network = aws.eks.Addon("network", cluster_name=cluster.name, addon_name="vpc-cni", opts=opts)
group = aws.eks.NodeGroup(
    "group", cluster_name=cluster.name, node_role_arn=nodes.arn, subnet_ids=[subnets[0].id],
    node_group_name="gpu", ami_type="AL2023_x86_64_NVIDIA", capacity_type="SPOT", instance_types=["g5.xlarge"],
    scaling_config={"min_size": 0, "desired_size": 1, "max_size": 3},
    labels={"everstep.dev/pool": "gpu-spot"},
    taints=[{"key": "everstep.dev/spot", "value": "true", "effect": "NO_SCHEDULE"}],
    opts=Opts(provider=here, depends_on=[network, *node_policies, *egress_routes]),
)
pulumi.export("endpoint", cluster.endpoint)
"""

AKS = """
import pulumi_azure_native as azure
from pulumi_azure_native import authorization, containerservice as aks, managedidentity, network, resources
here = azure.Provider("here", location="eastus")
opts = Opts(provider=here)
group = resources.ResourceGroup("group", resource_group_name="everstep", opts=opts)
address = network.PublicIPAddress(
    "address", resource_group_name=group.name, sku={"name": "Standard"},
    public_ip_allocation_method="Static", opts=opts,
)
gateway = network.NatGateway(
    "gateway", resource_group_name=group.name, sku={"name": "Standard"},
    public_ip_addresses=[{"id": address.id}], opts=opts,
)
vnet = network.VirtualNetwork(
    "vnet", resource_group_name=group.name, address_space={"address_prefixes": ["10.0.0.0/16"]}, opts=opts
)
subnet = network.Subnet(
    "subnet", subnet_name="nodes", resource_group_name=group.name, virtual_network_name=vnet.name,
    address_prefix="10.0.0.0/16", nat_gateway={"id": gateway.id}, opts=opts,
)
identity = managedidentity.UserAssignedIdentity(
    "identity", resource_name_="control", resource_group_name=group.name, opts=opts
)
assignment = authorization.RoleAssignment(
    "assignment", role_assignment_name="5b1f5b3a-5d8b-4f7e-9c43-4f0f0ad7f2c1", scope=subnet.id,
    role_definition_id=subnet.id.apply(
        lambda _: "/subscriptions/00000000-0000-4000-8000-000000000000/providers/Microsoft.Authorization"
        "/roleDefinitions/4d97b98b-1d4f-4787-a291-c67834d212e7"
    ),
    principal_id=identity.principal_id, principal_type="ServicePrincipal", opts=opts,
)
cluster = aks.ManagedCluster(
    "cluster", resource_name_="everstep", resource_group_name=group.name, dns_prefix="everstep",
    kubernetes_version="1.36", identity={"type": "UserAssigned", "user_assigned_identities": [identity.id]},
    agent_pool_profiles=[{
        "name": "system", "mode": "System", "vm_size": "Standard_D4s_v5", "count": 1,
        "vnet_subnet_id": subnet.id, "node_labels": {"everstep.dev/pool": "system"},
    }],
    network_profile={
        "network_plugin": "azure", "outbound_type": "userAssignedNATGateway", "service_cidr": "10.2.0.0/16",
        "dns_service_ip": "10.2.0.10",
    },
    oidc_issuer_profile={"enabled": True}, disable_local_accounts=True,
    aad_profile={"managed": True, "enable_azure_rbac": True},
    opts=Opts(provider=here, depends_on=[assignment]),
)
pool = aks.AgentPool(
    "pool", agent_pool_name="t4", resource_group_name=group.name, resource_name_=cluster.name, mode="User",
    type="VirtualMachineScaleSets", vm_size="Standard_NC4as_T4_v3", scale_set_priority="Spot",
    scale_set_eviction_policy="Delete", spot_max_price=-1, count=1, vnet_subnet_id=subnet.id,
    node_labels={"kubernetes.azure.com/scalesetpriority": "spot"},
    node_taints=["kubernetes.azure.com/scalesetpriority=spot:NoSchedule"], opts=opts,
)
credentials = aks.list_managed_cluster_user_credentials_output(
    resource_group_name=group.name, resource_name=cluster.name, format="exec",
    opts=pulumi.InvokeOutputOptions(provider=here),
)
pulumi.export("kubeconfig", credentials.kubeconfigs[0].value)
pulumi.export("issuer", cluster.oidc_issuer_profile.issuer_url)
"""
