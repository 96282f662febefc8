"""What users of a generated Python client do first: write, read, search, lock, and look at an error.

Called with the address of the native interface; the generated package is `lockwood_client`. Knows no more of the server
than the description says.
"""

import importlib
import io
import pkgutil
import sys

import lockwood_client
from lockwood_client import Client
from lockwood_client.api.documents import document, dump, filter_, load, put, write
from lockwood_client.api.leases import release_lease, take
from lockwood_client.api.shards import put_procedure
from lockwood_client.models import (
    Code,
    DocumentPage,
    FilterRequest,
    LeaseRequest,
    Problem,
    PutBody,
    ReleaseRequest,
    Sort,
    WireCondition,
    WireConditionOp,
    WireEventCreate,
    WireEventCreateFields,
    WireEventCreateType,
    WireFilterAnd,
    WireFilterNot,
    WireFilterOr,
    WireResource,
    WriteOne,
)
from lockwood_client.types import File

client = Client(base_url="http://" + sys.argv[1])


def import_everything():
    """Every module of the client can be imported."""
    modules = list(pkgutil.walk_packages(lockwood_client.__path__, "lockwood_client."))
    for module in modules:
        importlib.import_module(module.name)
    assert len(modules) > 150, len(modules)


def body(value):
    fields = PutBody()
    fields.additional_properties.update(value)
    return fields


def documents():
    for key, value in {"42": {"name": "Ann", "age": 30, "city": "Bonn"}, "43": {"name": "Bob", "age": 17}}.items():
        written = put.sync("shop", "user", key, client=client, body=body(value))
        assert written.position > 0, written
    fields = WireEventCreateFields()
    fields.additional_properties.update({"name": "Cyd", "age": 50, "city": "Köln"})
    event = WireEventCreate(collection="user", key=44, fields=fields, type_=WireEventCreateType.CREATE)
    assert write.sync("shop", client=client, body=WriteOne(events=[event])).position == 3

    found = document.sync("shop", "user", "42", client=client)
    assert found.document.value.additional_properties == {"name": "Ann", "age": 30, "city": "Bonn"}, found


def search():
    """Alternatives inside each other keep their types on the way out."""
    adult = WireCondition(field="age", op=WireConditionOp.VALUE_5, value=18)
    ann = WireCondition(field="name", op=WireConditionOp.VALUE_0, value="Ann")
    bonn = WireCondition(field="city", op=WireConditionOp.VALUE_0, value="Bonn")
    either = WireFilterOr(or_=[ann, WireFilterNot(not_=bonn)])
    request = FilterRequest(
        collection="user", filter_=WireFilterAnd(and_=[adult, either]), sort=[Sort(field="age", descending=True)]
    )
    page = filter_.sync("shop", client=client, body=request)
    assert isinstance(page, DocumentPage), page
    assert [one.value["name"] for one in page.documents] == ["Cyd", "Ann"], page
    assert WireFilterAnd.from_dict(request.filter_.to_dict()) == request.filter_


def leases():
    resource = WireResource(path="user/42", mode="write")
    wanted = LeaseRequest(owner="backup", resources=[resource], ttl_ms=60_000)
    taken = take.sync("shop", client=client, body=wanted)
    assert taken.token > 0 and taken.owner.name == "backup", taken
    refused = put.sync_detailed("shop", "user", "42", client=client, body=body({"name": "x"}), wait_ms=0)
    assert refused.status_code == 423 and isinstance(refused.parsed, Problem), refused
    assert refused.parsed.code == Code.LOCKED and "backup" in refused.parsed.detail, refused
    released = release_lease.sync("shop", taken.lock, client=client, body=ReleaseRequest(owner="backup"))
    assert [lease.lock for lease in released.leases] == [taken.lock], released
    assert put.sync("shop", "user", "42", client=client, body=body({"name": "Ann"})).position == 4


def errors():
    missing = document.sync("shop", "user", "99", client=client)
    assert isinstance(missing, Problem) and missing.status == 404, missing
    assert missing.code == Code.NO_DOCUMENT, missing
    wrong = WireCondition(field="a..b", op=WireConditionOp.VALUE_0, value=1)
    refused = filter_.sync("shop", client=client, body=FilterRequest(collection="user", filter_=wrong))
    assert refused.code == Code.BAD_FIELD, refused


def bytes_as_they_are():
    lines = dump.sync("shop", client=client).payload.read()
    loaded = load.sync("copy", client=client, body=File(payload=io.BytesIO(lines)))
    assert loaded.position == 4, loaded
    source = b"return function(db, key) return key end"
    assert put_procedure.sync("shop", "echo", client=client, body=File(payload=io.BytesIO(source))).version == 1


import_everything()
documents()
search()
leases()
errors()
bytes_as_they_are()
print("done")
