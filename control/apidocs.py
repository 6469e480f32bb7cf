"""The admin API's page for people: every operation of its schema, without a script or a network."""

from html import escape
from typing import Any

_STYLE = (
    "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color-scheme:light dark}td,th{text-align:left;padding:.2rem 1rem .2rem 0;vertical-align:top}"
    "code{font-size:.95em}"
)


def page(schema: dict[str, Any]) -> str:
    """HTML for an OpenAPI schema: method, path, meaning, and the fields of its body."""
    rows = "".join(
        f"<tr><td><code>{method.upper()}</code><td><code>{escape(path)}</code>"
        f"<td>{escape(operation.get('description', ''))}<td>{_fields(operation, schema)}"
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    )
    title = escape(schema["info"]["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style><h1>{title} {escape(schema['info']['version'])}</h1>"
        '<p>The whole schema: <a href="openapi.json">openapi.json</a>. '
        "Bodies and answers are JSON; an error is "
        "<code>{&quot;error&quot;: {&quot;code&quot;, &quot;message&quot;}}</code>.</p>"
        f"<table><tr><th>method<th>path<th>meaning<th>body{rows}</table></html>"
    )


def _fields(operation: dict[str, Any], schema: dict[str, Any]) -> str:
    body = operation.get("requestBody")
    if body is None:
        return ""
    name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    model = schema["components"]["schemas"][name]
    required = model.get("required", [])
    return ", ".join(
        f"<code>{escape(field)}</code>" + ("" if field in required else " (optional)")
        for field in model["properties"]
    )
