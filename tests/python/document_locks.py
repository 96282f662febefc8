"""The flow of document locks, with the official client as it is: 5.x and 7.x on typed paths, 8.x on untyped ones.

Called with the addresses of the Elasticsearch facade and of the native interface. Knows no more of the server than
its two interfaces.
"""

import json
import sys
import urllib.error
import urllib.request
import warnings

import elasticsearch
from elasticsearch import helpers

warnings.simplefilter("ignore")
FACADE, NATIVE = sys.argv[1:3]
MAJOR = elasticsearch.__version__[0]
TYPED = MAJOR < 8
# Without types, an index of its own holds the locks.
FILES = ("fs", "file") if TYPED else ("fs", "_doc")
LOCKS = ("fs", "lock") if TYPED else ("fs-lock", "_doc")

client = elasticsearch.Elasticsearch(["http://" + FACADE])
BadRequest = elasticsearch.RequestError if MAJOR < 8 else elasticsearch.BadRequestError


def at(place, id=None):
    """The arguments that name a document or a collection."""
    index, kind = place
    named = {"index": index}
    if TYPED:
        named["doc_type"] = kind
    if id is not None:
        named["id"] = id
    return named


def body(content):
    """A body, which 8.x takes apart into arguments."""
    return {"body": content} if MAJOR < 8 else content


def lock(process, id="1"):
    """What everybody sends who wants a lock."""
    script = {"lang": "groovy", "params": {"process_id": process}}
    script["file" if TYPED else "id"] = "judge-lock"
    if not TYPED:
        del script["lang"]
    return client.update(**at(LOCKS, id), **body({"upsert": {"process_id": process}, "script": script}))


def native(method, path, content=None):
    """The status and the answer of a request to the native interface."""
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(f"http://{NATIVE}{path}", data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def fails(kind, call, *args, **kwargs):
    """The error that the call must end in."""
    try:
        call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{call} succeeded")


def status_and_body(error):
    if MAJOR < 8:
        return error.status_code, error.info
    return error.meta.status, error.body


def shows(answer, expected):
    for name, value in expected.items():
        assert answer[name] == value, (name, answer)


def total(answer):
    total = answer["hits"]["total"]
    return total if isinstance(total, int) else total["value"]


def transcript():
    """The seed, from the first lock to the last."""
    assert client.ping()
    assert client.info()["version"]["number"].startswith("7.17.")

    locked = lock(123)
    shows(locked, {"_id": "1", "_version": 1, "result": "created"})
    shows(locked["_shards"], {"total": 2, "successful": 1, "failed": 0})
    shows(client.get(**at(LOCKS, "1")), {"_version": 1, "found": True, "_source": {"process_id": 123}})
    assert client.exists(**at(LOCKS, "1"))
    assert not client.exists(**at(LOCKS, "2"))

    status, problem = status_and_body(fails(BadRequest, lock, 234))
    assert status == problem["status"] == 400
    shows(problem["error"], {"type": "illegal_argument_exception", "reason": "failed to execute script"})
    assert problem["error"]["root_cause"][0]["type"] == "remote_transport_exception"
    cause = problem["error"]["caused_by"]
    shows(cause, {"type": "script_exception", "reason": "error evaluating judge-lock", "lang": "groovy"})
    shows(cause["caused_by"], {"type": "power_assertion_error", "reason": "assert false\n"})
    assert client.get(**at(LOCKS, "1"))["_version"] == 1

    again = lock(123)
    shows(again, {"_version": 1, "result": "noop", "_shards": {"total": 0, "successful": 0, "failed": 0}})

    client.index(**at(FILES, "1"), **body({"name": "README.txt"}) if TYPED else {"document": {"name": "README.txt"}})
    updated = client.update(**at(FILES, "1"), **body({"doc": {"name": "README1.txt"}}))
    shows(updated, {"_version": 2, "result": "updated"})
    shows(client.get(**at(FILES, "1"))["_source"], {"name": "README1.txt"})

    lock(123, "2")
    lock(999, "3")
    client.indices.refresh(index=LOCKS[0])
    query = {"query": {"term": {"process_id": 123}}}
    page = client.search(**at(LOCKS), **body(query), scroll="1m", size=1)
    assert total(page) == 2 and len(page["hits"]["hits"]) == 1, page
    assert page["hits"]["max_score"] == 1
    found = [hit["_id"] for hit in page["hits"]["hits"]]
    while page["hits"]["hits"]:
        page = client.scroll(scroll_id=page["_scroll_id"], scroll="1m")
        found += [hit["_id"] for hit in page["hits"]["hits"]]
    assert sorted(found) == ["1", "2"], found
    client.clear_scroll(scroll_id=page["_scroll_id"])

    scanned = list(helpers.scan(client, query=query, **at(LOCKS)))
    assert sorted(hit["_id"] for hit in scanned) == ["1", "2"]
    actions = [{"_op_type": "delete", "_index": LOCKS[0], "_id": hit["_id"]} for hit in scanned]
    if TYPED:
        actions = [dict(action, _type=LOCKS[1]) for action in actions]
    assert helpers.bulk(client, actions) == (2, [])
    assert not client.exists(**at(LOCKS, "1"))

    shows(lock(234), {"result": "created"})
    shows(client.delete(**at(LOCKS, "1")), {"result": "deleted"})
    shows(client.delete(**at(LOCKS, "3")), {"result": "deleted"})


def release_by_query():
    """All locks of a process at once."""
    for id in ["1", "2", "3"]:
        lock(999 if id == "3" else 123, id)
    released = client.delete_by_query(**at(LOCKS), **body({"query": {"term": {"process_id": 123}}}), conflicts="proceed")
    shows(released, {"timed_out": False, "total": 2, "deleted": 2, "batches": 1, "version_conflicts": 0, "failures": []})
    assert [client.exists(**at(LOCKS, id)) for id in ["1", "2", "3"]] == [False, False, True]
    shows(lock(234, "1"), {"result": "created"})
    released = client.delete_by_query(**at(LOCKS), **body({"query": {"match_all": {}}}))
    shows(released, {"total": 2, "deleted": 2})


def overview():
    """What there is, and how it is."""
    health = client.cluster.health(wait_for_status="yellow")
    shows(health, {"status": "green", "timed_out": False, "number_of_nodes": 1})
    mappings = client.indices.get_mapping(index=FILES[0])[FILES[0]]["mappings"]
    properties = mappings["file"]["properties"] if TYPED else mappings["properties"]
    assert properties == {"name": {"type": "keyword"}}, mappings
    table = str(client.cat.indices(index=FILES[0], v=True, h="health,index,docs.count")).splitlines()
    assert [line.split() for line in table] == [["health", "index", "docs.count"], ["green", FILES[0], "1"]], table
    client.indices.create(index="other")
    assert total(client.search(index=[FILES[0], "other"])) == 1
    assert total(client.search(index="_all")) == 1
    assert client.count(index="f*,other")["count"] == 1
    fails(elasticsearch.NotFoundError, client.search, index=[FILES[0], "nothing"])
    client.indices.delete(index="other")


def the_other_flows():
    """A global lock, a shared one, and writes that need a document to be there or not."""
    create = dict(body({}) if TYPED else {"document": {}})
    shows(client.create(**at(LOCKS, "global"), **create), {"result": "created", "_version": 1})
    error = fails(elasticsearch.ConflictError, client.create, **at(LOCKS, "global"), **create)
    status, problem = status_and_body(error)
    assert status == 409 and problem["error"]["type"] == "version_conflict_engine_exception"
    client.delete(**at(LOCKS, "global"))
    fails(elasticsearch.NotFoundError, client.get, **at(LOCKS, "global"))
    fails(elasticsearch.NotFoundError, client.get, **dict(at(FILES, "1"), index="nothing"))

    def shared(id):
        script = {"id": "judge-lock-2"}
        upsert = {"lock_type": "shared", "lock_count": 1}
        return client.update(**at(LOCKS, id), **body({"upsert": upsert, "script": script}))

    def unlock(id):
        return client.update(**at(LOCKS, id), **body({"script": {"id": "unlock-shared"}}), retry_on_conflict=3)

    path = "/clinton/projects"
    shows(shared(path), {"result": "created"})
    shows(shared(path), {"result": "updated", "_version": 2})
    exclusive = {"lock_type": "exclusive"}
    create = body(exclusive) if TYPED else {"document": exclusive}
    fails(elasticsearch.ConflictError, client.create, **at(LOCKS, path), **create)
    shows(unlock(path), {"result": "updated"})
    shows(unlock(path), {"result": "deleted"})
    shows(client.create(**at(LOCKS, path), **create), {"result": "created"})
    fails(BadRequest, shared, path)
    client.delete(**at(LOCKS, path))

    got = client.mget(index=FILES[0], **({"doc_type": FILES[1]} if TYPED else {}), **body({"ids": ["1", "9"]}))
    assert [doc["found"] for doc in got["docs"]] == [True, False]
    assert client.count(**at(FILES))["count"] == 1
    assert client.indices.exists(index=FILES[0]) and not client.indices.exists(index="nothing")
    client.indices.create(index="made")
    client.indices.delete(index="made")


def together_with_others():
    """The locks are everybody's: native leases are in the clients' way, and theirs in the way of native ones."""
    index, kind = LOCKS
    wanted = {"owner": "backup", "resources": [{"path": [kind, "7"], "mode": "write"}], "ttl_ms": 60000}
    status, answer = native("POST", f"/v1/{index}/locks", wanted)
    assert status == 201, answer
    status, problem = status_and_body(fails(elasticsearch.ConflictError, lock, 123, "7"))
    assert status == 409 and "backup" in problem["error"]["reason"], problem
    taken = answer["lock"]
    status, answer = native("POST", f"/v1/{index}/locks/{taken}/release", {"owner": "backup"})
    assert status == 200, answer

    shows(lock(123, "7"), {"result": "created"})
    status, answer = native("GET", f"/v1/{index}/locks")
    assert status == 200 and [one["owner"]["name"] for one in answer["locks"]] == ["123"], answer
    shows(answer["locks"][0]["owner"], {"via": "elasticsearch"})
    status, problem = native("POST", f"/v1/{index}/locks", wanted)
    assert status == 423 and problem["blockers"][0]["name"] == "123", problem
    client.delete(**at(LOCKS, "7"))

    index, kind = FILES
    wanted["resources"][0]["path"] = [kind, "1"]
    status, answer = native("POST", f"/v1/{index}/locks", wanted)
    assert status == 201, answer
    error = fails(elasticsearch.ConflictError, client.update, **at(FILES, "1"), **body({"doc": {"name": "x"}}))
    assert "backup" in status_and_body(error)[1]["error"]["reason"]
    native("POST", f"/v1/{index}/locks/{answer['lock']}/release", {"owner": "backup"})


transcript()
release_by_query()
the_other_flows()
overview()
together_with_others()
print("done with", elasticsearch.__versionstr__)
