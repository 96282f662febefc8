"""Compares every example of an OpenAPI document with the schema beside it.

Called with the path of the document. Knows nothing of what it describes.
"""

import json
import sys

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

DOCUMENT = "urn:document"
with open(sys.argv[1], encoding="utf-8") as file:
    document = json.load(file)
registry = Registry().with_resource(DOCUMENT, Resource.from_contents(document, default_specification=DRAFT202012))


def places(value, path=""):
    """Every object that has both a schema and an example, with the pointer to it."""
    if isinstance(value, dict):
        if "schema" in value and "example" in value:
            yield path, value
        for name, inner in value.items():
            if name != "example":
                yield from places(inner, path + "/" + name.replace("~", "~0").replace("/", "~1"))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, f"{path}/{number}")


count = 0
for path, place in places(document["paths"], "#/paths"):
    validator = Draft202012Validator({"$ref": f"{DOCUMENT}{path}/schema"}, registry=registry)
    for error in validator.iter_errors(place["example"]):
        sys.exit(f"{path} at {error.json_path}: {error.message}")
    count += 1
print(count, "examples fit")
