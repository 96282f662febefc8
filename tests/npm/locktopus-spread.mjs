// The official Locktopus client, unmodified, in a namespace whose documents are on several shards. LOCKTOPUS_ADDRESS is a node,
// LOCKTOPUS_NAMESPACE the namespace. Says on standard output how far it is, and goes on with each line on standard input;
// tests/cluster/facades.rs reads and writes these.

import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import locktopus from '@locktopus/client';
import WebSocket from 'ws';

const { LocktopusClient, LOCK_TYPE } = locktopus;
const [host, port] = process.env.LOCKTOPUS_ADDRESS.split(':');
const namespace = process.env.LOCKTOPUS_NAMESPACE;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (word) => process.stdout.write(`${word}\n`);
const hear = () => lines.next();

const resources = ['1', '2'].map((key) => ({ type: LOCK_TYPE.WRITE, path: ['user', key] }));
const client = new LocktopusClient(WebSocket, { host, port: Number(port), namespace, abandonTimeoutMs: 4000 });
await client.connect();
// It is told after every shard has confirmed it, so it may be enqueued first.
assert.ok((await client.lock(...resources)) || (await client.acquire()));
say('held');
await hear();
await client.release();
say('released');
await hear();
client.close();
process.exit(0);
