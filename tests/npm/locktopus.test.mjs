// The official Locktopus client, unmodified, against a running server at LOCKTOPUS_ADDRESS (host:port).
// Run with `node --test`; tests/locktopus/npm.rs does.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { afterEach, test } from 'node:test';
import locktopus from '@locktopus/client';
import WebSocket from 'ws';

const { LocktopusClient, LOCK_TYPE, CLIENT_STATE } = locktopus;
const [host, port] = (process.env.LOCKTOPUS_ADDRESS ?? '').split(':');
assert.ok(port, 'LOCKTOPUS_ADDRESS must be host:port');

// The client hangs for ever when it is told of an error; this makes such a test fail. Nothing is measured.
const guard = { timeout: 60_000 };
// The server counts whole milliseconds.
const ROUNDING_MS = 2;

const write = (...path) => ({ type: LOCK_TYPE.WRITE, path });
const read = (...path) => ({ type: LOCK_TYPE.READ, path });

let opened = [];
let namespaces = 0;
const newNamespace = () => `npm-${++namespaces}`;

async function connect(namespace, abandonTimeoutMs = 0) {
  const client = new LocktopusClient(WebSocket, { host, port: Number(port), namespace, abandonTimeoutMs });
  await client.connect();
  opened.push(client);
  return client;
}

async function stats(namespace) {
  const response = await fetch(`http://${host}:${port}/stats_v1?namespace=${namespace}`);
  assert.equal(response.status, 200);
  return response.json();
}

// Held and waiting locks of a namespace.
async function groups(namespace) {
  const { GroupsAcquired, GroupsPending } = await stats(namespace);
  return [GroupsAcquired, GroupsPending];
}

afterEach(() => {
  opened.forEach((client) => client.close());
  opened = [];
});

test('the packages are the ones that are meant', () => {
  const require = createRequire(import.meta.url);
  const client = require('@locktopus/client/package.json');
  assert.deepEqual([client.name, client.version], ['@locktopus/client', '1.1.4']);
  assert.equal(require('ws/package.json').version, '8.22.2');
});

test('connect, lock, release, close', guard, async () => {
  const client = new LocktopusClient(WebSocket, `ws://${host}:${port}/v1?namespace=${newNamespace()}`);
  assert.equal(client.getState(), CLIENT_STATE.NOT_CONNECTED);
  const connected = client.connect();
  assert.equal(client.getState(), CLIENT_STATE.CONNECTING);
  await connected;
  assert.equal(client.getState(), CLIENT_STATE.READY);
  assert.equal(await client.lock(write('a', 'b')), true);
  assert.equal(client.getState(), CLIENT_STATE.ACQUIRED);
  assert.equal(client.isAcquired(), true);
  assert.equal(await client.acquire(), true);
  await client.release();
  assert.equal(client.getState(), CLIENT_STATE.READY);
  const closed = new Promise((resolve) => client.onConnectionClose(resolve));
  client.close();
  assert.equal(client.getState(), CLIENT_STATE.NOT_CONNECTED);
  assert.equal((await closed).code, 1000);
});

test('a client may connect again after close', guard, async () => {
  const client = await connect(newNamespace());
  assert.equal(await client.lock(write('a')), true);
  await client.release();
  // The client takes the end of its old connection for that of the new one unless it is over.
  const closed = new Promise((resolve) => client.onConnectionClose(resolve));
  client.close();
  await closed;
  await client.connect();
  assert.equal(await client.lock(write('a')), true);
  await client.release();
});

test('a namespace is required', guard, async () => {
  const client = new LocktopusClient(WebSocket, `ws://${host}:${port}/v1`);
  await assert.rejects(client.connect(), /400/);
});

test('enqueued, then acquired', guard, async () => {
  const namespace = newNamespace();
  const [holder, waiter] = [await connect(namespace), await connect(namespace)];
  assert.equal(await holder.lock(write('a')), true);
  assert.equal(await waiter.lock(read('a', 'b')), false);
  assert.equal(waiter.getState(), CLIENT_STATE.ENQUEUED);
  assert.equal(waiter.isAcquired(), false);
  const acquired = waiter.acquire();
  await holder.release();
  assert.equal(await acquired, true);
  assert.equal(waiter.isAcquired(), true);
  await waiter.release();
});

test('release before the grant', guard, async () => {
  const namespace = newNamespace();
  const [holder, waiter] = [await connect(namespace), await connect(namespace)];
  await holder.lock(write('a'));
  assert.equal(await waiter.lock(write('a')), false);
  const acquired = waiter.acquire();
  await waiter.release();
  assert.equal(await acquired, false);
  assert.equal(waiter.getState(), CLIENT_STATE.READY);
  assert.deepEqual(await groups(namespace), [1, 0]);
  assert.equal(await waiter.lock(write('b')), true);
  await waiter.release();
  await holder.release();
});

test('release that crosses the grant', guard, async () => {
  const namespace = newNamespace();
  const [holder, waiter] = [await connect(namespace), await connect(namespace)];
  for (let round = 0; round < 50; round++) {
    assert.equal(await holder.lock(write('a')), true);
    assert.equal(await waiter.lock(write('a')), false);
    // Whether the waiter is granted before its release arrives is open; the client copes with both.
    await Promise.all([holder.release(), waiter.release()]);
    assert.equal(waiter.getState(), CLIENT_STATE.READY);
  }
  assert.deepEqual(await groups(namespace), [0, 0]);
});

test('readers share, writers do not', guard, async () => {
  const namespace = newNamespace();
  const [one, two, three] = [await connect(namespace), await connect(namespace), await connect(namespace)];
  assert.equal(await one.lock(read('a')), true);
  assert.equal(await two.lock(read('a', 'b')), true);
  assert.equal(await three.lock(write('a', 'b')), false);
  await one.release();
  assert.deepEqual(await groups(namespace), [1, 1]);
  await two.release();
  assert.equal(await three.acquire(), true);
});

test('the lock of a closed client stays for the abandon timeout', guard, async () => {
  const namespace = newNamespace();
  const [holder, waiter] = [await connect(namespace, 400), await connect(namespace)];
  assert.equal(await holder.lock(write('a')), true);
  assert.equal(await waiter.lock(write('a')), false);
  const start = performance.now();
  holder.close();
  assert.equal(await waiter.acquire(), true);
  const kept = performance.now() - start;
  assert.ok(kept + ROUNDING_MS >= 400, `free after ${kept} ms`);
});

test('a dead waiter keeps its place and is granted', guard, async () => {
  const namespace = newNamespace();
  const [holder, dead, next] = [
    await connect(namespace),
    await connect(namespace, 600),
    await connect(namespace),
  ];
  assert.equal(await holder.lock(write('a')), true);
  assert.equal(await dead.lock(write('a')), false);
  assert.equal(await next.lock(write('a')), false);
  const start = performance.now();
  dead.close();
  await holder.release();
  assert.equal(await next.acquire(), true);
  const kept = performance.now() - start;
  assert.ok(kept + ROUNDING_MS >= 600, `passed on after ${kept} ms`);
});

test('20,000 resources in one lock', guard, async () => {
  const namespace = newNamespace();
  const [client, other] = [await connect(namespace), await connect(namespace)];
  const resources = Array.from({ length: 20_000 }, (_, index) =>
    write('some', 'long', 'common', 'prefix', 'of', 'a', 'path', `leaf-${index}`),
  );
  assert.equal(await client.lock(...resources), true);
  assert.equal(await other.lock(resources[19_999]), false);
  await client.release();
  assert.equal(await other.acquire(), true);
});

test('a path of 50 segments', guard, async () => {
  const namespace = newNamespace();
  const [client, other] = [await connect(namespace), await connect(namespace)];
  const path = Array.from({ length: 50 }, (_, index) => `segment ${index}`);
  assert.equal(await client.lock(write(...path)), true);
  assert.equal(await other.lock(write(...path.slice(0, 49), 'sibling')), true);
  await other.release();
  assert.equal(await other.lock(read(...path.slice(0, 25))), false);
  await client.release();
  assert.equal(await other.acquire(), true);
});

test('the empty path is the whole namespace', guard, async () => {
  const namespace = newNamespace();
  const [client, other] = [await connect(namespace), await connect(namespace)];
  assert.equal(await client.lock(write()), true);
  assert.equal(await other.lock(read('anything')), false);
  await client.release();
  assert.equal(await other.acquire(), true);
});

test('a connection is used again and again', guard, async () => {
  const client = await connect(newNamespace());
  for (let round = 1; round <= 300; round++) {
    assert.equal(await client.lock(write('a'), read('b', String(round))), true);
    assert.equal(client.getLockId(), String(round));
    await client.release();
  }
});

test('numbers count 1, 2, 3 within a namespace', guard, async () => {
  for (const namespace of [newNamespace(), newNamespace()]) {
    const clients = [await connect(namespace), await connect(namespace), await connect(namespace)];
    for (const [index, client] of clients.entries()) {
      await client.lock(write('a'));
      assert.equal(client.getLockId(), String(index + 1));
    }
    await clients[0].release();
    assert.equal(await clients[1].acquire(), true);
    assert.equal(clients[1].getLockId(), '2');
  }
});

test('namespaces are isolated', guard, async () => {
  const [one, two] = [await connect(newNamespace()), await connect(newNamespace())];
  assert.equal(await one.lock(write('a')), true);
  assert.equal(await two.lock(write('a')), true);
});

test('first come, first served', guard, async () => {
  const namespace = newNamespace();
  const clients = [];
  for (let index = 0; index < 10; index++) {
    const client = await connect(namespace);
    assert.equal(await client.lock(write('a')), index === 0);
    clients.push(client);
  }
  const order = [];
  await Promise.all(
    clients.map(async (client, index) => {
      assert.equal(await client.acquire(), true);
      order.push(index);
      // Exactly one holds it, ever.
      assert.deepEqual(await groups(namespace), [1, 9 - index]);
      await client.release();
    }),
  );
  assert.deepEqual(order, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test('messages as the client sees them', guard, async () => {
  const client = await connect(newNamespace());
  const seen = [];
  client.onMessage(({ data, direction }) => seen.push([direction, data]));
  await client.lock(write('a'));
  await client.release();
  assert.deepEqual(seen, [
    ['out', '{"action":"lock","resources":[{"type":"write","path":["a"]}]}'],
    ['in', '{"id":"1","action":"lock","state":"acquired"}\n'],
    ['out', '{"action":"release"}'],
    ['in', '{"id":"1","action":"release","state":"ready"}\n'],
  ]);
});

test('the connection of a client that makes a mistake is closed with 3000', guard, async () => {
  const client = await connect(newNamespace());
  const seen = [];
  client.onMessage(({ data, direction }) => direction === 'in' && seen.push(data));
  const closed = new Promise((resolve) => client.onConnectionClose(resolve));
  // The client hangs here by design of its own; all that counts is what it is told.
  client.lock({ type: 'mistake', path: ['a'] }).catch(() => {});
  assert.equal((await closed).code, 3000);
  assert.match(seen[0], /^communication error: .*invalid lock type: mistake/);
  assert.equal(seen.length, 1);
});
