"""Python programs and policy packs under the real engine, through our language host."""

import json
import sys
from pathlib import Path

import pytest

from twin.tests.project import Project

pytestmark = pytest.mark.twin


def test_an_exception_shows_only_the_frames_of_the_users_code(project: Project) -> None:
    project.program(
        """
        from helper import broken
        print("before it broke")
        broken({})
        """
    )
    (project.folder / "helper.py").write_text(
        "def broken(settings):\n    return settings['color']\n"
    )

    output = project.pulumi("preview", fails=True)
    assert "before it broke" in output
    assert "error: Program failed with an unhandled exception:" in output
    assert "KeyError: 'color'" in output
    assert "in broken" in output
    assert "run_program" not in output, "the host's own frames are noise"
    assert "runpy" not in output
    assert "asyncio" not in output


def test_a_run_error_is_shown_only_as_its_message(project: Project) -> None:
    project.program('raise pulumi.RunError("size is not a setting; did you mean sizes?")')

    output = project.pulumi("preview", fails=True)
    assert "error: size is not a setting; did you mean sizes?" in output
    assert "Traceback" not in output


def test_debug_messages_are_shown_only_with_the_flag(project: Project) -> None:
    project.program(
        """
        pulumi.log.debug("the first detail")
        pulumi.log.debug("the last detail")
        """
    )

    output = project.pulumi("preview", "--debug")
    assert "the first detail" in output
    assert "the last detail" in output
    assert "detail" not in project.pulumi("preview")


def test_a_program_that_exits_fails_with_its_code(project: Project) -> None:
    project.program("import os\nos._exit(7)")

    assert "the program exited with code 7" in project.pulumi("preview", fails=True)


def test_the_program_finds_its_modules_and_its_configuration_with_secrets(project: Project) -> None:
    project.pulumi("config", "set", "color", "red")
    project.pulumi("config", "set", "--secret", "word", "hunter2")
    project.program(
        """
        import os, kubernetes
        settings = pulumi.Config()
        pulumi.export("color", settings.require("color"))
        pulumi.export("word", settings.require_secret("word"))
        pulumi.export("folder", os.getcwd())
        pulumi.export("client", kubernetes.__file__)
        """
    )
    project.up()

    output = json.loads(project.pulumi("stack", "output", "--json"))
    assert output["color"] == "red"
    assert output["word"] == "[secret]"
    assert output["folder"] == str(project.folder)
    assert "site-packages/kubernetes" in output["client"], "a package of the host must not hide it"


def test_a_program_can_use_a_separate_virtual_environment(project: Project) -> None:
    (project.folder / "Pulumi.yaml").write_text(
        "name: probe\nruntime: {name: python, options: {virtualenv: absent}}\n"
    )
    output = project.pulumi("preview", fails=True)
    assert "requires the virtual environment 'absent'" in output

    interpreter = project.use_virtual_environment()
    project.program("import sys; pulumi.export('python', sys.executable)")
    project.up()
    assert str(interpreter) in project.pulumi("stack", "output")


def test_about_shows_the_interpreter_and_the_packages(project: Project) -> None:
    output = project.pulumi("about")

    assert sys.executable in output
    assert "pulumi-kubernetes" in output


POLICY = """
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
        diagnostic = pb.AnalyzeDiagnostic(
            policyName="no-maps", policyPackName="probe", policyPackVersion="1.0.0", urn=request.urn,
            message="maps are not allowed here", enforcementLevel=pb.MANDATORY,
        )
        return pb.AnalyzeResponse(diagnostics=[diagnostic])

    def AnalyzeStack(self, request, context):
        return pb.AnalyzeResponse()


server = grpc.server(futures.ThreadPoolExecutor(4))
analyzer_pb2_grpc.add_AnalyzerServicer_to_server(Pack(), server)
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
while True:
    time.sleep(60)
"""


def test_violations_found_by_a_policy_pack_folder_fail_the_preview(
    project: Project, tmp_path: Path
) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "PulumiPolicy.yaml").write_text("runtime: python\nversion: 1.0.0\n")
    (pack / "__main__.py").write_text(POLICY)
    project.program(
        """
        import pulumi_kubernetes as k8s
        k8s.core.v1.ConfigMap("map", metadata={"name": "m", "namespace": "default"})
        """
    )

    output = project.pulumi("preview", f"--policy-pack={pack}", fails=True)
    assert "maps are not allowed here" in output
    assert "mandatory" in output

    project.program("")
    project.pulumi("preview", f"--policy-pack={pack}")
