"""The base class of all components: their type token, their children's options, their order.

Pulumi waits for a component's `depends_on` when it creates resources, but does not record that order in the
state of the component's children, so `destroy` would not follow it. A `Component` therefore passes its
dependencies to each child; the order of deletion is then the exact reverse of the order of creation.
"""

from collections.abc import Callable, Sequence

import pulumi

DependsOn = pulumi.Input[Sequence[pulumi.Input[pulumi.Resource]] | pulumi.Resource]

Transformation = Callable[
    [pulumi.ResourceTransformationArgs], pulumi.ResourceTransformationResult | None
]
"""A function that Pulumi applies to a component and each resource below it before they are registered."""


class Component(pulumi.ComponentResource):
    """A component whose children inherit its dependencies."""

    def __init__(self, token: str, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the component.

        Args:
            token: type token without its prefix `everstep:`, as `<module>:<Class>`.
            name: prefix of all the children's names.
            opts: options of the component: parent, provider and dependencies.
        """
        super().__init__(f"everstep:{token}", name, None, opts)
        self.name = name
        self._depends_on: DependsOn | None = opts.depends_on if opts is not None else None

    def child(
        self,
        *,
        depends_on: Sequence[pulumi.Resource] = (),
        delete_before_replace: bool | None = None,
        replace_on_changes: Sequence[str] = (),
        ignore_changes: Sequence[str] = (),
        protect: bool = False,
        retain_on_delete: bool = False,
        timeout: str | None = None,
    ) -> pulumi.ResourceOptions:
        """Return the options of a child: its parent, the component's dependencies and its own.

        Args:
            depends_on: further resources or components that must exist before the child.
            delete_before_replace: True for objects with a fixed name, whose old and new version cannot coexist.
            replace_on_changes: property paths whose change replaces the object.
            ignore_changes: property paths that other programs may change.
            protect: whether Pulumi refuses to delete the child.
            retain_on_delete: whether the child is kept in the cloud when the stack no longer declares it.
            timeout: maximum duration of the child's creation, of its update and of its deletion, such as `30m`;
                None: the provider's default.
        """
        return pulumi.ResourceOptions(
            parent=self,
            depends_on=_combined(self._depends_on, depends_on),
            delete_before_replace=delete_before_replace,
            replace_on_changes=list(replace_on_changes),
            ignore_changes=list(ignore_changes),
            protect=protect or None,
            retain_on_delete=retain_on_delete or None,
            custom_timeouts=(
                pulumi.CustomTimeouts(create=timeout, update=timeout, delete=timeout)
                if timeout
                else None
            ),
        )


def _combined(inherited: DependsOn | None, added: Sequence[pulumi.Resource]) -> DependsOn:
    """Return one list of dependencies; an output of resources stays an output."""
    if inherited is None:
        return [*added]
    if isinstance(inherited, (pulumi.Resource, Sequence)):
        return [*_as_list(inherited), *added]
    output = pulumi.Output.from_input(inherited)  # type: ignore[arg-type]  # Awaitables are valid
    return output.apply(lambda resources: [*_as_list(resources), *added])


def _as_list(
    resources: Sequence[pulumi.Input[pulumi.Resource]] | pulumi.Resource,
) -> Sequence[pulumi.Input[pulumi.Resource]]:
    return resources if isinstance(resources, Sequence) else [resources]
