"""Names in Kubernetes and in the environment that several parts of Everstep share."""

DOMAIN = "everstep.dev"

# --- Images
# Images that clusters pull; each has a Dockerfile.
IMAGES = ("trainer", "controller", "spot", "etcd-rejoin")
LOCAL_IMAGES = "localhost/everstep"  # prefix of images that are built on this machine
LOCAL_IMAGE = f"{LOCAL_IMAGES}/{{}}:local"
RELEASED_IMAGE = "ghcr.io/everstep/{}:0.1.0"  # reference of an image that a release publishes

# --- Namespaces
JOB_NAMESPACE = "elastic-job"  # namespace of job, etcd and controller; upstream's name
SYSTEM_NAMESPACE = "everstep-system"  # namespace of programs that run on nodes

# --- Labels and taints of nodes
POOL_LABEL = f"{DOMAIN}/pool"
GPU_POOL = "gpu-spot"  # the pool of the workers, including GPU nodes bought on demand
GPU_POOL_LABEL = f"{DOMAIN}/gpu-pool"  # name of one of several pools of workers
SYSTEM_POOL = "system"
CAPACITY_LABEL = f"{DOMAIN}/capacity"
ON_DEMAND = "on-demand"
SPOT_TAINT_KEY = f"{DOMAIN}/spot"
SPOT_TAINT_VALUE = "true"
AZURE_SPOT_LABEL = "kubernetes.azure.com/scalesetpriority"  # AKS sets it, and a taint of this name
AZURE_SPOT = "spot"  # value of the label and of the taint
HOSTNAME_LABEL = "kubernetes.io/hostname"  # set by the kubelet
ZONE_LABEL = "topology.kubernetes.io/zone"  # set by both clouds, and expected by the autoscaler

# --- Annotations of nodes, written by the spot watcher
NOTICE_ANNOTATION = f"{DOMAIN}/notice"  # an announced interruption with its deadline, as JSON
ADVICE_ANNOTATION = f"{DOMAIN}/advice"  # a rebalance recommendation

# --- Annotations of ElasticJobs and of workers' pods
SCALING_ANNOTATION = f"{DOMAIN}/scaling"  # on an ElasticJob: SCALING_FIXED or SCALING_CAPACITY
SCALING_FIXED, SCALING_CAPACITY = "fixed", "capacity"
PLACEMENT_ANNOTATION = f"{DOMAIN}/placement"  # on an ElasticJob: its zones, as JSON
BOUNDS_ANNOTATION = f"{DOMAIN}/nnodes"  # on a worker pod, written by the controller: MIN:MAX
TEMPLATE_HASH_ANNOTATION = f"{DOMAIN}/template-hash"  # on a worker pod, written by the controller
DEADLINE_ANNOTATION = f"{DOMAIN}/deadline"  # on a worker pod, written by the spot watcher

# --- The ElasticJob API (upstream's) and what its controllers set on workers
ELASTICJOB_GROUP, ELASTICJOB_VERSION = "elastic.pytorch.org", "v1alpha1"
ELASTICJOB_API_VERSION = f"{ELASTICJOB_GROUP}/{ELASTICJOB_VERSION}"
ELASTICJOB_KIND, ELASTICJOB_PLURAL = "ElasticJob", "elasticjobs"
JOB_NAME_LABEL = "job-name"
GROUP_NAME_LABEL = "group-name"  # its value is ELASTICJOB_GROUP
REPLICA_TYPE_LABEL, WORKER_REPLICA = "replica-type", "worker"
REPLICA_INDEX_LABEL = "replica-index"
WORKER_CONTAINER = "elasticjob-worker"  # the controllers read the exit code under this name
PLACEHOLDER_LABEL = f"{DOMAIN}/placeholder-of"  # on a pod that requests a machine for this job

# --- Labels of pods
NAME_LABEL = "app.kubernetes.io/name"
DATA_PREPARATION = "prepare"  # name of the pods that prepare the data set
PREPARATION_JOB = f"{DATA_PREPARATION}-{{}}"  # name of the Job of these pods, by the data set
# Of a job on the platform of another stack: by the job, because several such stacks may prepare the same data set.
JOB_STACK_PREPARATION_JOB = f"{DATA_PREPARATION}.{{}}"

# --- Extended resources
GPU_RESOURCE = "nvidia.com/gpu"
EFA_RESOURCE = "vpc.amazonaws.com/efa"

# --- Services and service accounts
ETCD = "etcd"
ETCD_CLIENT_SERVICE = "etcd-client"
CONTROLLER = "elastic-job-controller"  # upstream's Deployment and service account
MAINTAINED_CONTROLLER = (
    "elasticjob-controller"  # Everstep's own: service account, lease, field manager
)
SPOT_WATCHER = "spot"
ETCD_CREDENTIALS = "etcd-credentials"  # the Job that creates etcd's certificates and passwords
TRAINER_SERVICE_ACCOUNT = "trainer"  # cloud identities are bound to this name
VOLUME_CLAIM = "everstep"
WORKER_PRIORITY_CLASS, PLATFORM_PRIORITY_CLASS = "everstep-workers", "everstep-platform"
PLACEHOLDER_PRIORITY_CLASS = "everstep-placeholders"

# --- Pods
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})

# --- Tags of cloud resources
PRODUCTION = "prod"  # value of the tag `environment` of stacks that must be protected
REQUIRED_TAGS = ("owner", "costCenter", "environment")

# --- Ports
ETCD_CLIENT_PORT, ETCD_PEER_PORT = 2379, 2380
CONTROLLER_METRICS_PORT = 8080  # /metrics and /healthz
GPU_METRICS_PORT = 9400  # NVIDIA's DCGM exporter
WORKER_METRICS_PORT = 9464  # port of a pod's first worker process; the others use the next ports

# --- Paths in pods
MOUNT = "/everstep"  # the shared volume
POD_INFO = "/etc/everstep"  # annotations of the worker's own pod, by the downward API
BOUNDS_FILE, DEADLINE_FILE = f"{POD_INFO}/nnodes", f"{POD_INFO}/deadline"

# --- Environment variables of workers
AGENT_VARIABLE = "EVERSTEP_AGENT"  # path of the agent's socket
BOUNDS_VARIABLE = (
    "EVERSTEP_NNODES_FILE"  # path of the file with MIN:MAX; if unset, the bounds are fixed
)
GRACE_VARIABLE = "EVERSTEP_GRACE_SECONDS"  # seconds after SIGTERM within which a worker must leave
RUN_VARIABLE = "EVERSTEP_RUN"  # path of the run folder, for the user's program
METRICS_PORT_VARIABLE = "EVERSTEP_METRICS_PORT"  # if unset, there are no metrics
DEADLINE_VARIABLE = "EVERSTEP_DEADLINE_FILE"  # path of the file with the deadline of the machine
POD_NAME_VARIABLE, POD_IP_VARIABLE, NODE_NAME_VARIABLE = "POD_NAME", "POD_IP", "NODE_NAME"
