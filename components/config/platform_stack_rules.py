"""Rules of a stack whose job runs on the platform of another stack."""

from components.config.existing import ExistingClusterConfig, HostPathConfig
from components.config.faults import ConfigFault
from components.config.platform import CostConfig, PlatformConfig, RegistryConfig
from components.config.rules import ConfigRule
from components.config.section import Section
from components.config.workload import ControllerConfig, EtcdConfig

PLATFORM_SECTIONS: dict[str, Section] = {
    "cluster": ExistingClusterConfig(),
    "storage": HostPathConfig(),
    "etcd": EtcdConfig(),
    "controller": ControllerConfig(),
    "platform": PlatformConfig(),
    "registry": RegistryConfig(),
    "cost": CostConfig(),
}
"""Section of the platform's stack -> its value in a stack file that omits it."""


def _belongs_to_platform(section: str, absent: Section) -> ConfigRule:
    """Return the rule that refuses a section of the platform in a stack that declares only a job."""

    def check(platform: Section | None, value: object) -> list[ConfigFault]:
        if platform is None or value == absent:
            return []
        return [_fault(section, None)]

    return ConfigRule(("platformStack", section), check)


def _no_tags(platform: Section | None, tags: dict[str, str]) -> list[ConfigFault]:
    """Check that no tags are set, since no billed resource is declared."""
    return [_fault("tags", tags)] if platform is not None and tags else []


def _no_protection(platform: Section | None, protect: object) -> list[ConfigFault]:
    """Check that no protection is set, since neither cluster nor data are declared."""
    return [_fault("protect", protect)] if platform is not None and protect else []


def _no_priority_class(platform: Section | None, priority_class: str | None) -> list[ConfigFault]:
    """Check that job.priorityClass is absent: the stack creates one, by which its quota selects the workers."""
    if platform is None or priority_class is None:
        return []
    rule = (
        "cannot be set together with platformStack, whose priority becomes this job's PriorityClass"
    )
    fix = "remove it, and set platformStack.priority"
    return [ConfigFault("job.priorityClass", priority_class, rule, fix)]


def _fault(key: str, value: object) -> ConfigFault:
    rule = "belongs to the platform's stack, which platformStack names"
    return ConfigFault(key, value, rule, "remove it here, and set it in that stack's file")


RULES: tuple[ConfigRule, ...] = (
    *(_belongs_to_platform(section, absent) for section, absent in PLATFORM_SECTIONS.items()),
    ConfigRule(("platformStack", "tags"), _no_tags),
    ConfigRule(("platformStack", "protect"), _no_protection),
    ConfigRule(("platformStack", "job.priorityClass"), _no_priority_class),
)
