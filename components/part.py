"""What all of Everstep's components share: their token, their children's options, their order.

Pulumi waits for a component's `depends_on` when it creates, but does not write that order into the
state of the component's children, so that `destroy` would not keep it. A `Part` therefore hands it
to each child explicitly; the order of destruction is then the exact reverse of that of creation.
"""

from collections.abc import Sequence

import pulumi


class Part(pulumi.ComponentResource):
    """A component whose children each depend on what the component was told to wait for."""

    def __init__(self, token: str, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        """Register the component.

        Args:
            token: `<module>:<Class>`, below the project's own `everstep:`.
            name: prefix of all the children's names.
            opts: its parent, its provider and what its children must wait for.
        """
        super().__init__(f"everstep:{token}", name, None, opts)
        self.name = name
        after = opts.depends_on if opts is not None else None
        self._after = [*after] if isinstance(after, Sequence) else []

    def child(
        self,
        *,
        after: Sequence[pulumi.Resource] = (),
        delete_before_replace: bool | None = None,
        replace_on_changes: Sequence[str] = (),
        ignore_changes: Sequence[str] = (),
        protect: bool = False,
        retain_on_delete: bool = False,
    ) -> pulumi.ResourceOptions:
        """Give a child's options: this parent, the component's order and `after` on top of it.

        Args:
            after: siblings, or their components, that must be there before the child.
            delete_before_replace: for objects whose name is fixed: two cannot be there at once.
            replace_on_changes: paths whose change makes a new object.
            ignore_changes: paths that somebody else may change.
            protect: whether Pulumi refuses to delete it.
            retain_on_delete: whether it stays where it is when the stack forgets it.
        """
        return pulumi.ResourceOptions(
            parent=self,
            depends_on=[*self._after, *after],
            delete_before_replace=delete_before_replace,
            replace_on_changes=list(replace_on_changes),
            ignore_changes=list(ignore_changes),
            protect=protect or None,
            retain_on_delete=retain_on_delete or None,
        )
