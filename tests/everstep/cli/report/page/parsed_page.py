"""A page as a tree, parsed strictly: an element that is not closed, or a repeated attribute, is an error."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from everstep.cli.report.page.markup import VOID


@dataclass
class Node:
    """An element with its attributes and children."""

    name: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list["Node | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, name: str) -> "Iterator[Node]":
        """Yield this element and its descendants with a name, in the order of the document."""
        if name in (self.name, "*"):
            yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.all(name)

    def by_id(self, identifier: str) -> "Node":
        (matching,) = (node for node in self.all("*") if node.attributes.get("id") == identifier)
        return matching


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open_nodes = [Node("document")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of <{tag}> is repeated: {attrs}"
        node = Node(tag, dict(attrs))
        self.open_nodes[-1].children.append(node)
        if tag not in VOID:
            self.open_nodes.append(node)

    def handle_endtag(self, tag: str) -> None:
        closed_node = self.open_nodes.pop()
        assert closed_node.name == tag, f"</{tag}> closes <{closed_node.name}>"

    def handle_data(self, data: str) -> None:
        self.open_nodes[-1].children.append(data)


def parse(text: str) -> Node:
    parser = _Parser()
    parser.feed(text)
    parser.close()
    assert [node.name for node in parser.open_nodes] == ["document"], "an element is not closed"
    return parser.open_nodes[0]
