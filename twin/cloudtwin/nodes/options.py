"""Options of a twin, stored so that every later command uses the options of the caller that started it."""

from dataclasses import asdict, dataclass
from pathlib import Path

from cloudtwin import files
from cloudtwin.images import Recipe
from cloudtwin.nodes.layout import Layout


@dataclass(frozen=True)
class TwinOptions:
    """Additions of the calling program to a twin.

    Attributes:
        recipes: images in addition to the twin's own.
        shared_mount: mount point in machines of the folder that all of them share.
    """

    recipes: tuple[Recipe, ...] = ()
    shared_mount: Path = Path("/mnt/shared")

    def save(self, layout: Layout) -> None:
        """Store the options in the twin's folder."""
        document = asdict(self)
        document["shared_mount"] = str(self.shared_mount)
        for recipe in document["recipes"]:
            recipe["root"] = str(recipe["root"])
        files.write_json(layout.options, document)


def load(layout: Layout) -> TwinOptions:
    """Return the stored options of a twin, or the defaults."""
    document = files.read_json(layout.options)
    if document is None:
        return TwinOptions()
    recipes = tuple(Recipe.parse(recipe) for recipe in document["recipes"])
    return TwinOptions(recipes, Path(document["shared_mount"]))
