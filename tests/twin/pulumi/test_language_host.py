"""Python programs and policy packs under the real engine, through our language host."""

import sys
import textwrap

import pytest

pytestmark = pytest.mark.twin


def test_an_exception_shows_the_users_frames_and_no_others(project):
    project.program(
        """
        from helper import broken
        print("before it broke")
        broken({})
        """
    )
    (project.folder / "helper.py").write_text(
        "def broken(settings):\n    return settings['colour']\n"
    )

    shown = project.pulumi("preview", fails=True)
    assert "before it broke" in shown
    assert "error: Program failed with an unhandled exception:" in shown
    assert "KeyError: 'colour'" in shown
    assert "in broken" in shown
    assert "run_program" not in shown, "the host's own frames are noise"
    assert "runpy" not in shown
    assert "asyncio" not in shown


def test_a_run_error_is_shown_as_its_message_alone(project):
    project.program('raise pulumi.RunError("colour is not a setting; did you mean color?")')

    shown = project.pulumi("preview", fails=True)
    assert "error: colour is not a setting; did you mean color?" in shown
    assert "Traceback" not in shown


def test_debug_messages_are_shown_to_whoever_asks_for_them_and_to_nobody_else(project):
    project.program(
        """
        pulumi.log.debug("the first detail")
        pulumi.log.debug("the last detail")
        """
    )

    shown = project.pulumi("preview", "--debug")
    assert "the first detail" in shown
    assert "the last detail" in shown
    assert "detail" not in project.pulumi("preview")


def test_a_program_that_leaves_by_itself_fails_with_its_code(project):
    project.program("import os\nos._exit(7)")

    assert "the program exited with code 7" in project.pulumi("preview", fails=True)


def test_the_program_finds_its_own_modules_configuration_and_secrets(project):
    project.pulumi("config", "set", "colour", "red")
    project.pulumi("config", "set", "--secret", "word", "hunter2")
    project.program(
        """
        import os, sys, kubernetes
        settings = pulumi.Config()
        pulumi.export("colour", settings.require("colour"))
        pulumi.export("word", settings.require_secret("word"))
        pulumi.export("folder", os.getcwd())
        pulumi.export("first", sys.path[0])
        pulumi.export("client", kubernetes.__file__)
        pulumi.export("organization", pulumi.get_organization())
        """
    )
    project.up()

    shown = project.pulumi("stack", "output")
    assert "red" in shown
    assert "hunter2" not in shown
    assert f"folder        {project.folder}" in shown
    assert "site-packages/kubernetes" in shown, (
        "our own package of that name must not be in its way"
    )


def test_a_program_can_live_in_a_virtual_environment_of_its_own(project):
    (project.folder / "Pulumi.yaml").write_text(
        "name: probe\nruntime: {name: python, options: {virtualenv: absent}}\n"
    )
    shown = project.pulumi("preview", fails=True)
    assert "asks for the virtual environment 'absent'" in shown

    (project.folder / "Pulumi.yaml").write_text(
        f"name: probe\nruntime: {{name: python, options: {{virtualenv: '{sys.prefix}'}}}}\n"
    )
    project.program("import sys; pulumi.export('python', sys.executable)")
    project.up()
    assert f"{sys.prefix}/bin/python" in project.pulumi("stack", "output")


def test_about_knows_the_interpreter_and_the_packages(project):
    shown = project.pulumi("about")

    assert sys.executable in shown
    assert "pulumi-kubernetes" in shown


POLICY = """
import sys
import time
from concurrent import futures

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import analyzer_pb2 as pb, analyzer_pb2_grpc, plugin_pb2


class Pack(analyzer_pb2_grpc.AnalyzerServicer):
    def Handshake(self, request, context):
        return pb.AnalyzerHandshakeResponse()

    def ConfigureStack(self, request, context):
        return pb.AnalyzerStackConfigureResponse()

    def Configure(self, request, context):
        return empty_pb2.Empty()

    def GetPluginInfo(self, request, context):
        return plugin_pb2.PluginInfo(version="1.0.0")

    def GetAnalyzerInfo(self, request, context):
        policy = pb.PolicyInfo(name="no-maps", description="No maps.", enforcementLevel=pb.MANDATORY)
        return pb.AnalyzerInfo(name="probe", displayName="probe", version="1.0.0", policies=[policy])

    def Analyze(self, request, context):
        if not request.type.endswith("ConfigMap"):
            return pb.AnalyzeResponse()
        found = pb.AnalyzeDiagnostic(
            policyName="no-maps", policyPackName="probe", policyPackVersion="1.0.0", urn=request.urn,
            message="maps are not allowed here", enforcementLevel=pb.MANDATORY,
        )
        return pb.AnalyzeResponse(diagnostics=[found])

    def AnalyzeStack(self, request, context):
        return pb.AnalyzeResponse()


server = grpc.server(futures.ThreadPoolExecutor(4))
analyzer_pb2_grpc.add_AnalyzerServicer_to_server(Pack(), server)
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
while True:
    time.sleep(60)
"""


def test_a_policy_pack_directory_is_run_and_its_verdict_counts(project, tmp_path):
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "PulumiPolicy.yaml").write_text("runtime: python\nversion: 1.0.0\n")
    (pack / "__main__.py").write_text(POLICY)
    project.program(
        textwrap.dedent(
            'k8s.core.v1.ConfigMap("map", metadata={"name": "m", "namespace": "default"})'
        )
    )

    shown = project.pulumi("preview", f"--policy-pack={pack}", fails=True)
    assert "maps are not allowed here" in shown
    assert "mandatory" in shown

    project.program("")
    project.pulumi("preview", f"--policy-pack={pack}")
