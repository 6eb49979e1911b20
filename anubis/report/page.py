"""Pages from templates, and the filters that these may use. All text is escaped, and shown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from anubis import __version__
from anubis.core.text import escape
from anubis.text import wording

if TYPE_CHECKING:
    from jinja2 import Environment


NO_HARDWARE = "a simulated fleet: no hardware was measured"


def simulated_note(clusters: Mapping[str, bool]) -> str:
    """Say which clusters are simulated, or that all are; nothing if none is."""
    made = [name for name, is_simulated in clusters.items() if is_simulated]
    if made and len(made) == len(clusters):
        return NO_HARDWARE
    return f"simulated, no hardware was measured: {wording.names(made)}" if made else ""


def page(template: str, **facts: Any) -> str:
    text = _environment().get_template(f"{template}.html.j2").render(version=__version__, **facts)
    return escape(text)


@cache  # a template takes longer to compile than a page to write
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("anubis.report"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    templates.filters.update(
        figure=wording.figure,
        share=wording.share,
        moment=wording.moment,
        lasting=wording.time_span,
        names=wording.names,
        called=wording.short_node_list,
        counted=wording.quantity,
    )
    return templates
