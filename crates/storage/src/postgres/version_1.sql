-- The tables of version 1 as a node of that version left them: six documents of the collection user, one of them
-- written twice, and a lease of job on user/7. The node was killed.

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

CREATE SCHEMA lockwood;

SET default_tablespace = '';

SET default_table_access_method = heap;

CREATE TABLE lockwood.ledger (
    shard bigint NOT NULL,
    space text NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL
);

CREATE TABLE lockwood.log (
    shard bigint NOT NULL,
    index bigint NOT NULL,
    epoch bigint NOT NULL,
    record bytea NOT NULL
);

CREATE TABLE lockwood.map (
    epoch bigint NOT NULL,
    map bytea NOT NULL
);

CREATE TABLE lockwood.namespace (
    name text NOT NULL,
    home bigint NOT NULL,
    spread boolean DEFAULT false NOT NULL
);

CREATE TABLE lockwood.node (
    name text NOT NULL,
    address text NOT NULL,
    version text NOT NULL,
    renewed_at timestamp with time zone NOT NULL,
    incarnation text DEFAULT ''::text NOT NULL,
    stops boolean DEFAULT false NOT NULL,
    drains boolean DEFAULT false NOT NULL
);

CREATE TABLE lockwood.setting (
    name text NOT NULL,
    value bytea NOT NULL
);

CREATE TABLE lockwood.shard (
    number bigint NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    owner text,
    last bigint DEFAULT 0 NOT NULL,
    rewrites bigint DEFAULT 0 NOT NULL,
    renewed_at timestamp with time zone DEFAULT now() NOT NULL,
    target text,
    pinned boolean DEFAULT false NOT NULL,
    CONSTRAINT guarded CHECK ((last >= 0))
)
WITH (fillfactor='20');

CREATE TABLE lockwood.snapshot (
    shard bigint NOT NULL,
    index bigint NOT NULL,
    part bigint NOT NULL,
    bytes bytea NOT NULL
);

INSERT INTO lockwood.ledger VALUES (1, 'numbers', '\x7365637265745f6b6579', '\x6a81915db992738d82ad2b5515c198f9b113d1944d25e479a0f5c1b35c5bd442');
INSERT INTO lockwood.ledger VALUES (1, 'numbers', '\x6365696c696e67', '\x0000000000100001');

INSERT INTO lockwood.log VALUES (1, 1, 1, '\x4b5c4fe201000764656661756c740101bfe185ad9f3400000104757365720100020001016e0131012672657472792d613930376134373435393830313230633631613062393165353232373261633100000000000000000000000000000000');
INSERT INTO lockwood.log VALUES (1, 2, 1, '\x4672078601000764656661756c740102cee185ad9f3400000104757365720100040001016e0132012672657472792d663538363536643365313862666532343232326431323737313537353564333800000000000000000000000000000000');
INSERT INTO lockwood.log VALUES (1, 3, 1, '\xa10e024401000764656661756c740103dbe185ad9f3400000104757365720100060001016e0133012672657472792d656430316664343936613133346364663563383932623834326137666665356600000000000000000000000000000000');
INSERT INTO lockwood.log VALUES (1, 4, 1, '\xebbadf3101000764656661756c740104e7e185ad9f3400000104757365720100080001016e0134012672657472792d626134346362346639326161623063336264626361313334333566303865366300000000000000000000000000000000');
INSERT INTO lockwood.log VALUES (1, 5, 1, '\xbe9b366601000764656661756c740105f6e185ad9f34000001047573657201000a0001016e0135012672657472792d643862323331653366393565306438313839303332346436616566363535663900000000000000000000000000000000');
INSERT INTO lockwood.log VALUES (1, 6, 1, '\xa0e8be2601000764656661756c74010684e285ad9f34000001047573657201000c0001016e0136012672657472792d373363653832656537656662623561336636333838623138363830383136396200000000000000000000000000000000');
INSERT INTO lockwood.log VALUES (1, 7, 1, '\x847d2fd401000764656661756c7401078ee285ad9f3400000104757365720100020101016e02313000012672657472792d663265303739393839353533633863653063656238663566383238663230383100000000000000000000000000000000');
INSERT INTO lockwood.log VALUES (1, 8, 1, '\xb074dbad010b0764656661756c740101036a6f62030080b89929010204757365720137057772697465ff9ce285ad9f34019c9a9fd69f340001');

INSERT INTO lockwood.namespace VALUES ('default', 1, false);

INSERT INTO lockwood.node VALUES ('old', '127.0.0.1:17118', '0.1.0', '2026-11-19 21:06:01.624399+00', 'acfb117609fb3f5e4afef4e65b35fd0c', false, false);

INSERT INTO lockwood.setting VALUES ('schema', '\x31');
INSERT INTO lockwood.setting VALUES ('cluster', '\xaa1bd1289298b523fdd6b24d6e1545ed2631a9c08238ffe29c987ec162734769');

INSERT INTO lockwood.shard VALUES (1, 1, 'old', 8, 0, '2026-11-19 21:06:00.618578+00', NULL, false);

ALTER TABLE ONLY lockwood.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (shard, space, key);

ALTER TABLE ONLY lockwood.log
    ADD CONSTRAINT log_pkey PRIMARY KEY (shard, index);

ALTER TABLE ONLY lockwood.map
    ADD CONSTRAINT map_pkey PRIMARY KEY (epoch);

ALTER TABLE ONLY lockwood.namespace
    ADD CONSTRAINT namespace_pkey PRIMARY KEY (name);

ALTER TABLE ONLY lockwood.node
    ADD CONSTRAINT node_pkey PRIMARY KEY (name);

ALTER TABLE ONLY lockwood.setting
    ADD CONSTRAINT setting_pkey PRIMARY KEY (name);

ALTER TABLE ONLY lockwood.shard
    ADD CONSTRAINT shard_pkey PRIMARY KEY (number);

ALTER TABLE ONLY lockwood.snapshot
    ADD CONSTRAINT snapshot_pkey PRIMARY KEY (shard, index, part);

