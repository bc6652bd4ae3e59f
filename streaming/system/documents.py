"""The documents of this project, which sentences name. An installation contains them too."""

from pathlib import Path

from streaming.system import paths

# In a checkout, a link leads to it.
_FOLDER = (Path(__file__).parents[1] / "docs").resolve()


def document(name: str) -> str:
    """Returns the path of a document, from the working directory if the document is below it.

    Args:
        name: The path in the folder `docs`.
    """
    return paths.shown(str(_FOLDER / name), paths.working_directory())
