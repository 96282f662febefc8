// What users of generated TypeScript types do first: write, read, search, lock, and look at an error. Called with the
// address of the native interface; the types are in `api`. Knows no more of the server than the description says.

import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };

type Filter = components["schemas"]["WireFilter"];

const client = createClient<paths>({ baseUrl: `http://${process.argv[2]}` });
const namespace = { namespace: "shop" };
const ann = { ...namespace, collection: "user", key: "42" };

function check(holds: boolean, what: unknown): asserts holds {
    if (!holds) throw new Error(JSON.stringify(what));
}

async function documents() {
    const written = await client.PUT("/v1/{namespace}/documents/{collection}/{key}", {
        params: { path: ann },
        body: { name: "Ann", age: 30, city: "Bonn" },
    });
    check(written.data?.position === 1, written);
    const events: components["schemas"]["WireEvent"][] = [
        { type: "create", collection: "user", key: 43, fields: { name: "Bob", age: 17 } },
        { type: "update", collection: "user", key: 42, fields: { age: 31 } },
    ];
    const both = await client.POST("/v1/{namespace}/write", { params: { path: namespace }, body: { events } });
    check(both.data?.position === 2, both);
    const found = await client.GET("/v1/{namespace}/documents/{collection}/{key}", { params: { path: ann } });
    check(found.data !== undefined && "document" in found.data && found.data.document.position === 2, found);
}

async function search() {
    const filter: Filter = {
        and: [
            { field: "age", op: ">=", value: 18 },
            { or: [{ field: "name", op: "=", value: "Ann" }, { not: { field: "city", op: "=", value: "Bonn" } }] },
        ],
    };
    const body = { collection: "user", filter, sort: [{ field: "age", descending: true }] };
    const page = await client.POST("/v1/{namespace}/filter", { params: { path: namespace }, body });
    check(page.data?.documents.length === 1 && page.data.documents[0]?.key === "42", page);
}

async function leases() {
    const taken = await client.POST("/v1/{namespace}/locks", {
        params: { path: namespace },
        body: { owner: "backup", resources: [{ path: "user/42", mode: "write" }], ttl_ms: 60_000 },
    });
    check(taken.data !== undefined && taken.data.token !== undefined, taken);
    const refused = await client.DELETE("/v1/{namespace}/documents/{collection}/{key}", {
        params: { path: ann, query: { wait_ms: 0 } },
    });
    const code: components["schemas"]["Code"] = "locked";
    check(refused.response.status === 423 && refused.error?.code === code, refused);
    const released = await client.POST("/v1/{namespace}/locks/{lock}/release", {
        params: { path: { ...namespace, lock: taken.data.lock } },
        body: { owner: "backup" },
    });
    check(released.data?.leases.length === 1, released);
}

async function errors() {
    const missing = await client.GET("/v1/{namespace}/documents/{collection}/{key}", {
        params: { path: { ...ann, key: "99" } },
    });
    check(missing.error !== undefined && missing.error.status === 404, missing);
    // @ts-expect-error There is no such operator, and the types say so.
    const wrong: Filter = { field: "age", op: "==", value: 18 };
    const refused = await client.POST("/v1/{namespace}/count", {
        params: { path: namespace },
        body: { collection: "user", filter: wrong },
    });
    check(refused.error?.code === "bad_filter", refused);
}

await documents();
await search();
await leases();
await errors();
console.log("done");
