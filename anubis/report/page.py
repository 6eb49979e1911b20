"""The templates of the pages, and the filters they may use. All text is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anubis.report import wording

if TYPE_CHECKING:
    from jinja2 import Environment


def environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("anubis.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    templates.filters.update(
        figure=wording.figure,
        share=wording.share,
        moment=wording.moment,
        lasting=wording.lasting,
        names=wording.names,
        called=wording.called,
        counted=wording.counted,
    )
    return templates
