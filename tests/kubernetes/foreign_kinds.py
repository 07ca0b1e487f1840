"""Kinds of objects that operators of others define, such as the Prometheus operator's.

Always: the API server takes the fields of the operator's own kind. It refuses others where we know
them all.
"""

from __future__ import annotations

import json
from typing import Any

from bench.lab.namespaces import ROOT

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MONITORING = "monitoring.coreos.com"
TEXT = {"type": "string"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
EXPRESSION = {"x-kubernetes-int-or-string": True}


def definition(group: str, version: str, kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    meta = {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in"}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


def loose_definition(group: str, version: str, kind: str) -> dict[str, Any]:
    """Returns a definition of a kind with any fields."""
    return definition(group, version, kind, {"type": "object", "x-kubernetes-preserve-unknown-fields": True})


def monitors_definition() -> dict[str, Any]:
    """Returns the definition of ServiceMonitors, as the Prometheus operator's package has their
    fields."""
    schema = json.loads((ROOT / "tests/servicemonitor.schema.json").read_text())
    return definition(MONITORING, "v1", "ServiceMonitor", _open(schema))


def rules_definition() -> dict[str, Any]:
    """Returns the definition of PrometheusRules."""
    fields = {
        "alert": TEXT,
        "record": TEXT,
        "for": TEXT,
        "keep_firing_for": TEXT,
        "labels": TEXTS,
        "annotations": TEXTS,
    }
    rule = {"type": "object", "required": ["expr"], "properties": {**fields, "expr": EXPRESSION}}
    known = {"name": TEXT, "interval": TEXT, "limit": {"type": "integer"}, "labels": TEXTS}
    rules = {"type": "array", "items": rule}
    group = {"type": "object", "required": ["name"], "properties": {**known, "rules": rules}}
    spec = {"type": "object", "properties": {"groups": {"type": "array", "items": group}}}
    return definition(MONITORING, "v1", "PrometheusRule", {"type": "object", "properties": {"spec": spec}})


def _open(schema: Any) -> Any:
    """Returns a schema in the words that definitions may have. The API server refuses unknown
    fields by itself."""
    if isinstance(schema, list):
        return [_open(one) for one in schema]
    if isinstance(schema, dict):
        kept = {
            key: _open(value) for key, value in schema.items() if value is not False or key != "additionalProperties"
        }
        return kept | ({"x-kubernetes-int-or-string": True} if "anyOf" in kept and "type" not in kept else {})
    return schema
