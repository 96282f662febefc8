"""The unmodified client against a running server, whose address is the first argument.

Every step is one the client offers; the script ends with an error at the first answer that is not as expected.
"""

import json
import sys

from confluent_kafka.schema_registry import ConfigCompatibilityLevel, Schema, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

URL = sys.argv[1]


def schema(**properties):
    text = {"type": "object", "title": "order", "properties": properties, "additionalProperties": False}
    return Schema(json.dumps(text), schema_type="JSON")


def refused(status, code, call, *arguments, **named):
    try:
        answer = call(*arguments, **named)
    except SchemaRegistryError as error:
        assert (error.http_status_code, error.error_code) == (status, code), error
        return str(error)
    raise AssertionError(f"not refused: {answer!r}")


def fresh():
    """A client that remembers nothing."""
    return SchemaRegistryClient({"url": URL})


FIRST = schema(total={"type": "integer"})
SECOND = schema(total={"type": "integer"}, note={"type": "string"})
WRONG = schema(total={"type": "string"})


def registers_and_finds():
    client = fresh()
    assert client.get_subjects() == []
    assert client.register_schema("order", FIRST) == 1
    assert fresh().register_schema("order", FIRST, normalize_schemas=True) == 1
    full = fresh().register_schema_full_response("order", SECOND)
    assert (full.schema_id, full.version) == (2, 2), full
    assert fresh().register_schema("copy", FIRST) == 1, "the same schema has the same id"
    assert fresh().get_subjects() == ["copy", "order"]
    assert fresh().get_versions("order") == [1, 2]
    by_id = fresh().get_schema(1)
    assert (json.loads(by_id.schema_str), by_id.schema_type) == (json.loads(FIRST.schema_str), "JSON")
    latest = fresh().get_latest_version("order")
    assert (latest.schema_id, latest.version, latest.subject) == (2, 2, "order")
    assert fresh().get_version("order", 1).schema_id == 1
    found = fresh().lookup_schema("order", SECOND)
    assert (found.schema_id, found.version) == (2, 2)
    assert fresh().get_schema_types() == ["JSON"]
    assert sorted(fresh().get_subjects_by_schema_id(1)) == ["copy", "order"]
    versions = fresh().get_schema_versions(1)
    assert sorted((one.subject, one.version) for one in versions) == [("copy", 1), ("order", 1)]
    refused(404, 40401, fresh().get_versions, "nothing")
    refused(404, 40402, fresh().get_version, "order", 7)
    refused(404, 40403, fresh().get_schema, 99)
    refused(404, 40403, fresh().lookup_schema, "order", WRONG)
    refused(404, 40401, fresh().lookup_schema, "nothing", FIRST)
    refused(422, 42201, fresh().register_schema, "order", Schema('{"type":"objekt"}', schema_type="JSON"))
    refused(422, 42201, fresh().register_schema, "order", Schema('"string"', schema_type="AVRO"))


def compares():
    assert fresh().get_compatibility() == "BACKWARD"
    message = refused(409, 40901, fresh().register_schema, "order", WRONG)
    assert "TYPE_CHANGED" in message and "#/properties/total" in message, message
    assert not fresh().test_compatibility("order", WRONG)
    assert not fresh().test_compatibility("order", WRONG, version=1, verbose=True)
    assert not fresh().test_compatibility_all_versions("order", WRONG)
    assert fresh().test_compatibility("order", SECOND, version="latest")
    assert fresh().test_compatibility("nothing", WRONG)
    refused(404, 40402, fresh().test_compatibility, "order", WRONG, version=9)


def sets():
    client = fresh()
    refused(404, 40408, client.get_compatibility, "order")
    assert client.set_compatibility("order", "NONE") == {"compatibility": "NONE"}
    assert client.get_compatibility("order") == "NONE"
    assert client.test_compatibility("order", WRONG)
    assert client.set_compatibility(level="full") == {"compatibility": "FULL"}
    assert client.get_compatibility() == "FULL"
    client.set_config("order", ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD))
    assert client.get_compatibility("order") == "BACKWARD"
    client.delete_config("order")
    refused(404, 40408, client.get_compatibility, "order")
    client.set_compatibility(level="BACKWARD")
    refused(422, 42203, client.set_compatibility, "order", "BOTH")
    assert client.get_global_mode() == "READWRITE"
    refused(404, 40409, client.get_mode, "order")
    assert client.update_mode("order", "READONLY") == "READONLY"
    assert client.get_mode("order") == "READONLY"
    refused(422, 42205, fresh().register_schema, "order", schema(total={"type": "number"}))
    assert client.delete_mode("order") == "READONLY"
    refused(422, 42204, client.update_mode, "order", "IMPORT")
    assert client.update_global_mode("READWRITE") == "READWRITE"


def keeps_contexts_apart():
    client = fresh()
    assert client.register_schema(":.shop:order", WRONG) == 1, "ids are a context's own"
    assert fresh().get_latest_version(":.shop:order").subject == ":.shop:order"
    assert sorted(fresh().get_contexts()) == [".", ".shop"]
    assert fresh().get_subjects(subject_prefix=":.shop:") == [":.shop:order"]
    assert json.loads(fresh().get_schema(1, subject_name=":.shop:").schema_str) == json.loads(WRONG.schema_str)


def serializes():
    client = fresh()
    text = json.dumps({"title": "event", "type": "object", "properties": {"n": {"type": "integer"}}})
    context = SerializationContext("events", MessageField.VALUE)
    serializer = JSONSerializer(text, client)
    data = serializer({"n": 7}, context)
    schema_id = client.get_latest_version("events-value").schema_id
    assert data[:5] == b"\x00" + schema_id.to_bytes(4, "big"), data
    assert json.loads(data[5:]) == {"n": 7}
    reader = JSONDeserializer(None, schema_registry_client=fresh())
    assert reader(data, context) == {"n": 7}
    try:
        serializer({"n": "seven"}, context)
    except Exception as error:
        assert "seven" in str(error), error
    else:
        raise AssertionError("what does not fit is not serialized")


def deletes():
    refused(404, 40407, fresh().delete_version, "order", 2, permanent=True)
    assert fresh().delete_version("order", 2) == 2
    refused(404, 40406, fresh().delete_version, "order", 2)
    assert fresh().get_versions("order") == [1]
    assert fresh().get_versions("order", deleted=True) == [1, 2]
    assert fresh().get_latest_version("order").version == 1
    assert fresh().get_schema(2).schema_type == "JSON", "a reader of old data still finds its schema"
    assert fresh().delete_subject("copy") == [1]
    refused(404, 40404, fresh().delete_subject, "copy")
    assert "copy" not in fresh().get_subjects()
    assert "copy" in fresh().get_subjects(deleted=True)
    assert fresh().delete_subject("copy", permanent=True) == [1]
    assert "copy" not in fresh().get_subjects(deleted=True)
    refused(404, 40401, fresh().delete_subject, "copy")


for step in [registers_and_finds, compares, sets, keeps_contexts_apart, serializes, deletes]:
    step()
    print(step.__name__)
