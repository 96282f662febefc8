// The official Locktopus client, unmodified, in a namespace whose documents are on several shards, while its home gets another
// owner. LOCKTOPUS_ADDRESS is a node that lives, LOCKTOPUS_NAMESPACE the namespace. Says on standard output how far it is, and goes
// on with each line on standard input; tests/cluster/facades.rs reads and writes these.

import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import locktopus from '@locktopus/client';
import WebSocket from 'ws';

const { LocktopusClient, LOCK_TYPE } = locktopus;
const [host, port] = process.env.LOCKTOPUS_ADDRESS.split(':');
const namespace = process.env.LOCKTOPUS_NAMESPACE;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (word) => process.stdout.write(`${word}\n`);
const hear = () => lines.next();

const resources = ['1', '2'].map((key) => ({ type: LOCK_TYPE.WRITE, path: ['user', key] }));
const connect = async () => {
  const options = { host, port: Number(port), namespace, abandonTimeoutMs: 4000 };
  const client = new LocktopusClient(WebSocket, options);
  await client.connect();
  const closed = new Promise((resolve) => client.onConnectionClose(resolve));
  return { client, closed };
};

const before = await connect();
// It is told after every shard has confirmed it, so it may be enqueued first.
assert.ok((await before.client.lock(...resources)) || (await before.client.acquire()));
say('held');
await before.closed;
say('closed');
// The protocol has no word for coming back, so this is another client.
let after;
while (!after) {
  after = await connect().catch(() => pause(50));
}
const acquired = (await after.client.lock(...resources)) || after.client.acquire();
say('asked');
assert.equal(await acquired, true);
say('granted');
await hear();
await after.client.release();
say('released');
await hear();
after.client.close();
process.exit(0);
