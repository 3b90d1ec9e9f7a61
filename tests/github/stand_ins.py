"""Stand-ins for the actions and programs that the workflows use.

Each, except the stand-in for `sudo`, records its call. Some do more: `actions/checkout` copies the repository, and
`pulumi/actions` can read the stack, so that an invalid stack fails; variables set the responses of the cloud.
"""

from pathlib import Path
from typing import Any

RECORD = """printf '%s\\n' "$ACTION" "$INPUTS" >> "$STAND_IN_RECORD"\n"""
CHECKOUT = 'cp -a "$STAND_IN_REPOSITORY/." .'

PULUMI = """
[ -n "$COMMAND" ] || exit 0 # only an installation
[ -z "$STAND_IN_READS_STACK" ] || everstep cost --stack "$STACK" > /dev/null
if [ "$EXPECT_NO_CHANGES" = true ] && [ -n "$STAND_IN_DRIFT" ]; then
  echo "error: no changes were expected but changes occurred"
  exit 1
fi
if [ "$COMMAND $STACK" = "$STAND_IN_REFUSED" ]; then
  echo "error: the cloud refuses $COMMAND of $STACK"
  exit 1
fi
"""
"""Two variables simulate the cloud: STAND_IN_DRIFT, set if it differs from the state; STAND_IN_REFUSED, the command and
stack that fail. STAND_IN_READS_STACK, if set, reads the stack, which takes seconds."""

DIGEST = "sha256:" + "0" * 64

INPUTS: dict[str, tuple[str, ...]] = {
    "actions/attest-build-provenance": (
        "subject-path",
        "subject-digest",
        "subject-name",
        "push-to-registry",
    ),
    "actions/cache": ("path", "key"),
    "actions/checkout": ("persist-credentials", "fetch-depth"),
    "actions/deploy-pages": (),
    "actions/download-artifact": ("name", "path"),
    "actions/setup-go": ("go-version", "cache-dependency-path"),
    "actions/setup-python": ("python-version",),
    "actions/upload-artifact": ("name", "path"),
    "actions/upload-pages-artifact": ("path",),
    "anchore/scan-action": ("image", "severity-cutoff", "only-fixed", "fail-build"),
    "anchore/sbom-action": ("path", "artifact-name", "output-file"),
    "aws-actions/configure-aws-credentials": (
        "role-to-assume",
        "role-session-name",
        "role-duration-seconds",
        "aws-region",
    ),
    "azure/login": ("client-id", "tenant-id", "subscription-id"),
    "azure/use-kubelogin": ("kubelogin-version",),
    "docker/build-push-action": ("context", "file", "push", "tags", "provenance", "sbom"),
    "docker/login-action": ("registry", "username", "password"),
    "docker/setup-buildx-action": (),
    "pulumi/actions": (
        "pulumi-version",
        "command",
        "stack-name",
        "cloud-url",
        "diff",
        "refresh",
        "exclude-protected",
        "expect-no-changes",
        "policyPacks",
        "comment-on-pr",
        "comment-on-summary",
    ),
    "pypa/gh-action-pypi-publish": ("skip-existing",),
}
"""Inputs of each action that the workflows may set."""

SCRIPTS = {
    "actions/checkout": CHECKOUT,
    "actions/download-artifact": 'mkdir -p "$INPUT_PATH"; cp "$STAND_IN_ARTIFACTS"/* "$INPUT_PATH"',
    "actions/upload-artifact": (
        'mkdir -p "$STAND_IN_ARTIFACTS"; cp "$INPUT_PATH"/* "$STAND_IN_ARTIFACTS"'
    ),
    "anchore/sbom-action": 'echo "{}" > "$INPUT_FILE"',
    "anchore/scan-action": 'case "$INPUT_IMAGE" in "${STAND_IN_VULNERABLE:-none}"@*) exit 1 ;; esac',
    "docker/build-push-action": 'test -f "$INPUT_FILE"; echo "digest=$STAND_IN_DIGEST" >> "$GITHUB_OUTPUT"',
    "pulumi/actions": PULUMI,
    "pypa/gh-action-pypi-publish": (
        'for file in dist/*; do echo "pypi upload ${file#dist/}"; done >> "$STAND_IN_RECORD.programs"'
    ),
}
"""Script that a stand-in runs after it has recorded its inputs: STAND_IN_VULNERABLE is an image, without its digest, in
which the scanner finds a vulnerability; STAND_IN_DIGEST is the digest that a push returns."""

PULUMI_PROGRAM = r"""#!/bin/sh
echo "pulumi $2 $4" >> "$STAND_IN_RECORD.programs"
case "$2 $4" in
  "output "*)
    echo '{"job": "imagenet", "kubeconfig": "{}"}' ;;
  "export "*)
    protect=true
    [ -z "$STAND_IN_UNPROTECTED$STAND_IN_UNPROTECTED_TYPE" ] || protect=false
    type=aws:s3/bucket:Bucket
    case "$4" in aks-*) type=azure-native:storage:BlobContainer ;; esac
    type=${STAND_IN_UNPROTECTED_TYPE:-$type}
    job=', {"type": "kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob"}'
    [ -z "$STAND_IN_DOWN$STAND_IN_JOBLESS" ] || job=
    cloud=
    case "$4$STAND_IN_DOWN" in
      eks-dev)
        cloud=', {"type": "aws:eks/cluster:Cluster", "id": "everstep-dev"}'
        cloud=$cloud', {"type": "aws:fsx/lustreFileSystem:LustreFileSystem", "id": "fs-old", "delete": true}'
        cloud=$cloud', {"type": "aws:fsx/lustreFileSystem:LustreFileSystem", "id": "fs-1"}'
        cloud=$cloud', {"type": "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", "id": "dra-1"}' ;;
    esac
    echo '{"deployment": {"resources": [{"type": "'$type'", "protect": '$protect'}'$cloud$job']}}' ;;
esac
"""
"""Pulumi's CLI for a stack that is up: STAND_IN_UNPROTECTED, if set, lets a destroy delete its data, and
STAND_IN_UNPROTECTED_TYPE a resource of this type; STAND_IN_DOWN, if set, leaves only its data in the state;
STAND_IN_JOBLESS, if set, removes the job from the state, as after an `up` that failed before it. The stack of EKS has
a file system that is linked to its bucket, and its predecessor, which is not deleted yet."""

AWS_PROGRAM = r"""#!/bin/sh
case "$2" in create-data-repository-task) id=" $4" ;; delete-log-group) id=" $4" ;; *) id= ;; esac
echo "aws $1 $2$id" >> "$STAND_IN_RECORD.programs"
case "$2" in
  create-data-repository-task) echo task-1 ;;
  describe-data-repository-tasks) echo "${STAND_IN_EXPORT:-SUCCEEDED}" ;;
  delete-log-group) [ -z "$STAND_IN_LOGS" ] || { echo "An error occurred ($STAND_IN_LOGS)" >&2; exit 254; } ;;
esac
"""
"""AWS's CLI: STAND_IN_EXPORT is the state of an export, STAND_IN_LOGS the error of the deletion of a log group."""

GH_PROGRAM = r"""#!/bin/sh
echo "gh $*" >> "$STAND_IN_RECORD.programs"
case "$2" in
  view | upload) [ -n "$STAND_IN_RELEASED" ] ;;
  create) [ -z "$STAND_IN_RELEASED" ] || { echo "a release with the same tag name already exists" >&2; exit 1; } ;;
esac
"""
"""GitHub's CLI: STAND_IN_RELEASED, if set, is a release that exists."""

KUBECTL_PROGRAM = r"""#!/bin/sh
echo "kubectl $3 $4 $5" >> "$STAND_IN_RECORD.programs"
[ -z "$STAND_IN_BUSY" ] || { echo "error: timed out waiting for the condition" >&2; exit 1; }
"""
"""kubectl; STAND_IN_BUSY, if set, keeps the pods of the job from ending."""

PROGRAMS = {
    "aws": AWS_PROGRAM,
    "kubectl": KUBECTL_PROGRAM,
    "pulumi": PULUMI_PROGRAM,
    "sudo": '#!/bin/sh\nwhile case "$1" in --*) ;; *) false ;; esac; do shift; done\nexec "$@"\n',
    "gh": GH_PROGRAM,
}
"""Programs of a hosted runner that may be missing here, by name."""


def write_programs(folder: Path) -> None:
    """Write the stand-ins for programs into a folder."""
    for name, script in PROGRAMS.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)


def action(name: str) -> dict[str, Any]:
    """Return the definition of the stand-in for an action."""
    assert name in INPUTS, f"{name} has no stand-in: declare its inputs in {__name__}.INPUTS"
    environment = {
        "ACTION": name,
        "INPUTS": "${{ toJSON(inputs) }}",
        "INPUT_PATH": "${{ inputs.path }}",
        "INPUT_IMAGE": "${{ inputs.image }}",
        "INPUT_FILE": "${{ inputs.file || inputs.output-file }}",
        "COMMAND": "${{ inputs.command }}",
        "STACK": "${{ inputs.stack-name }}",
        "EXPECT_NO_CHANGES": "${{ inputs.expect-no-changes }}",
    }
    outputs = {"digest": {"description": "digest", "value": "${{ steps.work.outputs.digest }}"}}
    return {
        "name": name,
        "description": "stand-in",
        "inputs": {key: {"description": key, "required": False} for key in INPUTS[name]},
        "outputs": outputs,
        "runs": {
            "using": "composite",
            "steps": [
                {
                    "id": "work",
                    "shell": "bash",
                    "env": environment,
                    "run": RECORD + SCRIPTS.get(name, ":"),
                },
            ],
        },
    }
