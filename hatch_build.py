"""Add the links of the project, and a README that renders elsewhere, to what a build packages.

ANUBIS_REPOSITORY is the address of the repository at its forge, as the workflow of a release knows
it. Without it a build names no address, and README keeps its links to files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)]+)\)")


def absolute_links(text: str, repository: str, version: str) -> str:
    """The text with links to the files of this version in place of links to files beside it."""

    def lead(link: re.Match[str]) -> str:
        way = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({repository}/{way}/v{version}/{link[3]})"

    return LINK.sub(lead, text)


class ProjectLinks(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository := os.environ.get("ANUBIS_REPOSITORY", "").rstrip("/"):
            files = f"{repository}/blob/v{metadata['version']}"
            text = absolute_links(text, repository, metadata["version"])
            metadata["urls"] = {
                "Repository": repository,
                "Documentation": f"{files}/docs/README.md",
                "Changelog": f"{files}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
