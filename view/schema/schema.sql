-- The view: what this server has heard of the whole cluster. It may be deleted
-- at any time; the other members bring it back.
--
-- What is replicated stands in tables named *_rows. People ask the SQL views
-- of the same names without the suffix: they leave the bookkeeping out and add
-- how much a row is worth (host_status, heard_at).
--
-- Every row has
--   site   the member that wrote it (its server id)
--   epoch  that member's life: it starts a new one when it has lost its view
--   seq    its transaction within the epoch, from 1, without gaps
--   at     when it wrote the row, by its own clock: nanoseconds since 1970
--   hash   64 bits over what the row says, for checksums
--
-- Owned tables have one writer for each row: the worker that it is about. Their
-- key is (site, key), so that no member can touch another's row. Rows of shared
-- tables belong to nobody: clock (a hybrid logical clock) decides which of two
-- versions stands, and site between equal clocks.
--
-- Machines and volumes belong to an app only if a broker has placed them there:
--   placement  the broker's signed statement (order, kind, app, worker); NULL in a
--              cluster without certificates, where every row is believed
--   placed     1 if the statement is valid and says what the row says. Each member
--              decides this for itself; it is not replicated.
--
-- Times are nanoseconds since 1970. Columns of type JSON TEXT hold compact JSON,
-- and nothing that is none gets in, so that queries may rely on it.
--
-- What a transaction says of a column is its value, or NULL for its default.

-- ---------------------------------------------------------------- bookkeeping

-- One row: what this file is.
CREATE TABLE meta (
  one        INTEGER PRIMARY KEY CHECK (one = 1),
  cluster    TEXT    NOT NULL,
  site       TEXT    NOT NULL, -- ours
  epoch      INTEGER NOT NULL, -- ours
  clock      INTEGER NOT NULL, -- the greatest hybrid logical clock given or taken
  boot       TEXT    NOT NULL, -- of the host, '' when it is not known: after another one the last commits may be missing
  touched_at INTEGER NOT NULL  -- when this file was last known to be in use
);

-- How far each stream, a life of a site, has been applied.
CREATE TABLE streams (
  site  TEXT    NOT NULL,
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL, -- all up to this one
  hash  INTEGER NOT NULL, -- of the stream's owned rows: the exclusive or of theirs
  at    INTEGER NOT NULL, -- when the site wrote that transaction, by its clock
  birth BLOB    NOT NULL DEFAULT x'', -- what the site's signatures are checked with: a certificate, or a key
  rows  INTEGER NOT NULL DEFAULT 0, -- owned ones
  bytes INTEGER NOT NULL DEFAULT 0, -- of theirs, about
  PRIMARY KEY (site, epoch)
) WITHOUT ROWID;

-- Whether a site is heard from, as this member sees it.
CREATE TABLE sites (
  site     TEXT    PRIMARY KEY,
  alive    INTEGER,          -- NULL: nobody knows yet
  heard_at INTEGER NOT NULL -- the last time that it was known to be alive, by our clock
) WITHOUT ROWID;

-- How many rows each table has, and the exclusive or of their hashes.
CREATE TABLE sums (
  tbl    TEXT    NOT NULL PRIMARY KEY,
  shared INTEGER NOT NULL, -- whether the table is
  rows   INTEGER NOT NULL,
  sum    INTEGER NOT NULL
) WITHOUT ROWID;

-- Rows that could not be taken in, each with its origin. Bounded: the oldest go.
CREATE TABLE quarantine (
  id       INTEGER PRIMARY KEY,
  site     TEXT    NOT NULL,
  epoch    INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  tbl      TEXT    NOT NULL,
  key      TEXT    NOT NULL,
  reason   TEXT    NOT NULL,
  row      BLOB,            -- as it came, NULL when it was too large
  since    INTEGER NOT NULL, -- by our clock
  retry_at INTEGER           -- when its time will have come; NULL: never
);

-- Deleted rows of shared tables, so that an older version does not come back.
CREATE TABLE tombstones (
  tbl   TEXT    NOT NULL,
  key   TEXT    NOT NULL,
  site  TEXT    NOT NULL,
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  at    INTEGER NOT NULL,
  clock INTEGER NOT NULL,
  hash  INTEGER NOT NULL,
  PRIMARY KEY (tbl, key)
) WITHOUT ROWID;
CREATE INDEX tombstones_by_stream ON tombstones (site, epoch, seq);

-- Who wrote each shared row that stands, or its tombstone.
CREATE TABLE proofs (
  tbl   TEXT NOT NULL,
  key   TEXT NOT NULL,
  birth BLOB NOT NULL, -- of births
  sig   BLOB NOT NULL,
  PRIMARY KEY (tbl, key)
) WITHOUT ROWID;

-- The births that proofs name: each once, under a part of its SHA-256.
CREATE TABLE births (
  id    BLOB PRIMARY KEY,
  birth BLOB NOT NULL
) WITHOUT ROWID;

-- ---------------------------------------------------------------- owned tables

-- A worker's account of itself. key: the worker's id.
CREATE TABLE worker_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL,
  region   TEXT    NOT NULL DEFAULT '',
  tag      INTEGER NOT NULL DEFAULT 0,
  version  TEXT    NOT NULL DEFAULT '',
  labels   JSON TEXT    NOT NULL DEFAULT '{}', -- JSON object
  capacity JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: accounts of the ledger, as they were at the row's time
  free     JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: amounts, coarse
  load     REAL    NOT NULL DEFAULT 0,    -- 0 idle to 1 and more
  drivers  JSON TEXT    NOT NULL DEFAULT '[]', -- JSON array of names
  leaving  INTEGER NOT NULL DEFAULT 0,    -- takes no orders: it is about to end
  cordoned INTEGER NOT NULL DEFAULT 0,    -- takes no orders: an operator wants it so
  PRIMARY KEY (site, key)
) WITHOUT ROWID;

-- A machine. key: its id. Its rows are long: with a rowid they lie in leaves alone,
-- which halves the work of writing and of finding them.
CREATE TABLE machine_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL,
  app        TEXT    NOT NULL DEFAULT '',
  app_id     TEXT    NOT NULL DEFAULT '', -- a name may have belonged to another app before
  name       TEXT    NOT NULL DEFAULT '',
  region     TEXT    NOT NULL DEFAULT '',
  order_id   TEXT    NOT NULL DEFAULT '',
  placement  BLOB,
  placed     INTEGER NOT NULL DEFAULT 0,
  instance   TEXT    NOT NULL DEFAULT '',
  state      TEXT    NOT NULL DEFAULT '',
  config     JSON TEXT    NOT NULL DEFAULT '{}', -- JSON, as the Machines API has it
  takes      JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: amounts of the ledger
  cordoned   INTEGER NOT NULL DEFAULT 0,
  boot       JSON TEXT    NOT NULL DEFAULT '{}', -- JSON: its latest start: number, pid, port, exit
  lease      JSON TEXT,                          -- JSON: owner, description, expires_at; never the nonce
  checks     JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: the status of each health check
  events     JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: the newest few, newest first
  image      JSON TEXT,                          -- JSON: what config.image meant when this version was made: registry, repository, tag, digest, labels
  private_ip TEXT    NOT NULL DEFAULT '', -- in the machine's own network
  network    TEXT    NOT NULL DEFAULT '', -- the private network that it is of
  created_at INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (site, key)
);
CREATE INDEX machine_rows_by_key ON machine_rows (key);
CREATE INDEX machine_rows_by_app ON machine_rows (app, region, app_id, placed);
CREATE INDEX machine_rows_unplaced ON machine_rows (site) WHERE NOT placed;

-- What a machine serves, by its config: kept by the triggers below, not
-- replicated.
CREATE TABLE service_rows (
  site TEXT NOT NULL, machine TEXT NOT NULL,
  position      INTEGER NOT NULL, -- in the config
  app           TEXT    NOT NULL,
  protocol      TEXT    NOT NULL,
  internal_port INTEGER NOT NULL,
  service       TEXT    NOT NULL, -- JSON, the whole entry
  PRIMARY KEY (site, machine, position)
) WITHOUT ROWID;
CREATE INDEX service_rows_by_app ON service_rows (app);

CREATE TRIGGER services_of_new_machine AFTER INSERT ON machine_rows BEGIN
  INSERT OR REPLACE INTO service_rows
  SELECT new.site, new.key, s.key, new.app, coalesce(s.value ->> '$.protocol', 'tcp'),
         coalesce(s.value ->> '$.internal_port', 0), s.value
  FROM json_each(new.config, '$.services') AS s WHERE s.type = 'object' AND s.key < 256;
END;
CREATE TRIGGER services_of_changed_machine AFTER UPDATE OF config, app ON machine_rows
WHEN old.config IS NOT new.config OR old.app IS NOT new.app BEGIN
  DELETE FROM service_rows WHERE site = old.site AND machine = old.key;
  INSERT OR REPLACE INTO service_rows
  SELECT new.site, new.key, s.key, new.app, coalesce(s.value ->> '$.protocol', 'tcp'),
         coalesce(s.value ->> '$.internal_port', 0), s.value
  FROM json_each(new.config, '$.services') AS s WHERE s.type = 'object' AND s.key < 256;
END;
CREATE TRIGGER services_of_gone_machine AFTER DELETE ON machine_rows BEGIN
  DELETE FROM service_rows WHERE site = old.site AND machine = old.key;
END;

-- A volume. key: its id.
CREATE TABLE volume_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL,
  app        TEXT    NOT NULL DEFAULT '',
  app_id     TEXT    NOT NULL DEFAULT '',
  name       TEXT    NOT NULL DEFAULT '',
  region     TEXT    NOT NULL DEFAULT '',
  order_id   TEXT    NOT NULL DEFAULT '',
  placement  BLOB,
  placed     INTEGER NOT NULL DEFAULT 0,
  state      TEXT    NOT NULL DEFAULT '',
  size_gb    INTEGER NOT NULL DEFAULT 0,
  encrypted  INTEGER NOT NULL DEFAULT 0,
  machine    TEXT    NOT NULL DEFAULT '', -- that it is attached to
  spec       JSON TEXT    NOT NULL DEFAULT '{}', -- JSON: as ordered
  takes      JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: amounts of the ledger
  error      TEXT    NOT NULL DEFAULT '', -- why it failed
  snapshots  JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: the newest few, newest last
  created_at INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (site, key)
) WITHOUT ROWID;
CREATE INDEX volume_rows_by_key ON volume_rows (key);
CREATE INDEX volume_rows_by_app ON volume_rows (app, key);
CREATE INDEX volume_rows_unplaced ON volume_rows (site) WHERE NOT placed;

-- An image that a worker has. key: its digest.
CREATE TABLE image_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL,
  name    TEXT    NOT NULL DEFAULT '', -- as it was asked for
  bytes   INTEGER NOT NULL DEFAULT 0,
  used_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (site, key)
) WITHOUT ROWID;
CREATE INDEX image_rows_by_key ON image_rows (key);

-- --------------------------------------------------------------- shared tables

-- An app. key: its name. Which of two apps of one name stands is decided by
-- bourse.App.Merge, not by the clock: the first one made does.
CREATE TABLE app_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  id         TEXT    NOT NULL DEFAULT '',
  life       INTEGER NOT NULL DEFAULT 0,
  org        TEXT    NOT NULL DEFAULT '',
  network    TEXT    NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL DEFAULT 0,
  deleted_at INTEGER -- NULL while it lives
) WITHOUT ROWID;
CREATE INDEX app_rows_by_stream ON app_rows (site, epoch, seq);

-- A secret of an app. key: the app's id, and the name. The value is sealed before
-- it gets here. A row without a name, below the app's id and //, is how far one
-- broker has come in changing the app's secrets: sealed is then what it had heard of the others.
CREATE TABLE secret_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  app        TEXT    NOT NULL DEFAULT '',
  name       TEXT    NOT NULL DEFAULT '',
  digest     TEXT    NOT NULL DEFAULT '',
  sealed     BLOB,
  version    INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX secret_rows_by_stream ON secret_rows (site, epoch, seq);

-- A release of an app. key: its id, a ULID: no two brokers write the same one. Its
-- version follows from the order of the ids; the column has what its broker thought.
CREATE TABLE release_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  app        TEXT    NOT NULL DEFAULT '',
  app_id     TEXT    NOT NULL DEFAULT '',
  version    INTEGER NOT NULL DEFAULT 0,
  status     TEXT    NOT NULL DEFAULT '',
  strategy   TEXT    NOT NULL DEFAULT '',
  description TEXT   NOT NULL DEFAULT '',
  image      TEXT    NOT NULL DEFAULT '',
  definition JSON TEXT    NOT NULL DEFAULT '{}', -- JSON: of the app, as its client has it
  metadata   JSON TEXT    NOT NULL DEFAULT '{}', -- JSON: what else its client says
  created_by TEXT    NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX release_rows_by_stream ON release_rows (site, epoch, seq);
CREATE INDEX release_rows_by_app ON release_rows (app_id, key);

-- An order that must not be filled by a worker that could not be told so.
-- key: order/worker.
CREATE TABLE cancelled_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  order_id TEXT NOT NULL DEFAULT '',
  worker   TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX cancelled_rows_by_worker ON cancelled_rows (worker);
CREATE INDEX cancelled_rows_by_stream ON cancelled_rows (site, epoch, seq);

-- A worker that will not come back, as an operator says. key: its id. All that it
-- wrote until then, in epochs up to until, is void; what it writes in a later one
-- counts. Of two versions the one with the later until stands.
CREATE TABLE forgotten_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  until  INTEGER NOT NULL DEFAULT 0,
  region TEXT    NOT NULL DEFAULT '',
  tag    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- A token that clients show, as far as brokers need it to know it again. key: its
-- id. What it is good for stays as it was made; of two versions the one that is
-- revoked stands.
CREATE TABLE token_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  digest     TEXT    NOT NULL DEFAULT '', -- SHA-256 of the token, in hex
  name       TEXT    NOT NULL DEFAULT '',
  org        TEXT    NOT NULL DEFAULT '', -- '*': everything; '': nothing
  apps       JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: name and id of each; none: all of the organization
  machines   JSON TEXT    NOT NULL DEFAULT '[]', -- JSON array of ids; none: all of the apps
  read_only  INTEGER NOT NULL DEFAULT 0,
  made_by    TEXT    NOT NULL DEFAULT '', -- the name of who made it
  made_with  TEXT    NOT NULL DEFAULT '', -- the id of the token that it was made with, '' for one of a file
  created_at INTEGER NOT NULL DEFAULT 0,
  expires_at INTEGER NOT NULL DEFAULT 0,  -- 0: never
  revoked_at INTEGER -- NULL while it is good
) WITHOUT ROWID;

-- ------------------------------------------------------------ what people ask

-- The comment behind AS is what "bourse sql --tables" says of the table.

-- host_status tells whether the host that a row is about is heard from: ok,
-- unreachable (the row may be out of date, heard_at says since when) or unknown
-- (only its rows were heard of). Times are RFC 3339 in UTC.

CREATE VIEW workers AS -- What workers have, as of updated_at. cpus are cores times overcommit; free is rounded down, for placement; capacity is exact.
SELECT r.site AS id, r.region, CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       (SELECT count(*) FROM machine_rows AS m WHERE m.site = r.site) AS machines,
       (SELECT iif(a.type = 'object', a.value, '{}') ->> '$.total' / 1e3 FROM json_each(r.capacity) AS a WHERE iif(a.type = 'object', a.value, '{}') ->> '$.resource' = 'cpu') AS cpus,
       (SELECT max(0, iif(a.type = 'object', a.value, '{}') ->> '$.total' - iif(a.type = 'object', a.value, '{}') ->> '$.used') / 1e3 FROM json_each(r.capacity) AS a WHERE iif(a.type = 'object', a.value, '{}') ->> '$.resource' = 'cpu') AS cpus_free,
       (SELECT iif(a.type = 'object', a.value, '{}') ->> '$.total' FROM json_each(r.capacity) AS a WHERE iif(a.type = 'object', a.value, '{}') ->> '$.resource' = 'memory') AS memory_mb,
       (SELECT max(0, iif(a.type = 'object', a.value, '{}') ->> '$.total' - iif(a.type = 'object', a.value, '{}') ->> '$.used') FROM json_each(r.capacity) AS a WHERE iif(a.type = 'object', a.value, '{}') ->> '$.resource' = 'memory') AS memory_mb_free,
       r.load, r.leaving, r.cordoned, r.version, printf('%06x', r.tag) AS tag, r.drivers, r.labels, r.capacity, r.free,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.at / 1e9, 'unixepoch') AS updated_at
FROM worker_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW capacity AS -- The ledgers of workers, exact as of updated_at. cpu is in thousandths, memory and disk are in MiB; used is machines, volumes, tasks and what is held.
SELECT r.site AS worker, r.region, r.line ->> '$.resource' AS resource, r.line ->> '$.total' AS total, r.line ->> '$.used' AS used,
       max(0, r.line ->> '$.total' - r.line ->> '$.used') AS free, r.leaving, r.cordoned,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.at / 1e9, 'unixepoch') AS updated_at
FROM (SELECT w.*, iif(a.type = 'object', a.value, '{}') AS line FROM worker_rows AS w JOIN json_each(w.capacity) AS a) AS r
LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW regions AS -- What workers have by region. What is free is counted where an order would find it: on workers that answer, stay and take orders.
SELECT region, count(*) AS workers, sum(host_status = 'ok') AS workers_ok, sum(leaving) AS workers_leaving, sum(cordoned) AS workers_cordoned, sum(machines) AS machines,
       total(cpus_free) FILTER (WHERE host_status = 'ok' AND NOT leaving AND NOT cordoned) AS cpus_free,
       CAST(total(memory_mb_free) FILTER (WHERE host_status = 'ok' AND NOT leaving AND NOT cordoned) AS INTEGER) AS memory_mb_free
FROM workers GROUP BY region;

CREATE VIEW machines AS -- Every machine, with its config and how its latest start went.
SELECT r.key AS id, r.app, r.name, r.region, r.site AS worker, r.state,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       r.config ->> '$.image' AS image, r.config ->> '$.guest.cpu_kind' AS cpu_kind, r.config ->> '$.guest.cpus' AS cpus,
       r.config ->> '$.guest.memory_mb' AS memory_mb, r.boot ->> '$.pid' AS pid, r.boot ->> '$.port' AS port,
       coalesce(r.boot ->> '$.number', 0) AS starts, r.boot ->> '$.exit.code' AS exit_code, r.lease ->> '$.owner' AS lease_owner, r.cordoned,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at,
       r.instance AS instance_id, r.order_id, coalesce(r.config -> '$.metadata', '{}') AS metadata, r.config, r.boot, r.lease, r.events,
       r.private_ip, r.network, r.image ->> '$.digest' AS image_digest, r.config ->> '$.mounts[0].volume' AS volume, r.app_id
FROM machine_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE r.placed;

CREATE VIEW unplaced_machines AS -- Machines that a worker shows as an app's although no broker placed them there. They belong to no app.
SELECT r.key AS id, r.site AS worker, r.app AS claimed_app, r.name, r.region, r.state, r.order_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at
FROM machine_rows AS r WHERE NOT r.placed;

CREATE VIEW events AS -- The newest few events of each machine. was is its state before.
SELECT r.event ->> '$.id' AS id, strftime('%Y-%m-%dT%H:%M:%fZ', r.event ->> '$.at') AS at, r.key AS machine, r.app, r.region,
       r.site AS worker, r.event ->> '$.type' AS type, r.event ->> '$.from' AS was, r.event ->> '$.state' AS state,
       r.event ->> '$.source' AS source, r.event ->> '$.exit.code' AS exit_code, r.event ->> '$.exit.error' AS error,
       coalesce(r.event ->> '$.exit.oom_killed', 0) AS oom_killed
FROM (SELECT m.*, iif(e.type = 'object', e.value, '{}') AS event FROM machine_rows AS m JOIN json_each(m.events) AS e WHERE m.placed) AS r;

CREATE VIEW services AS -- What machines would serve, by their configs. There is no proxy yet: nothing listens there.
SELECT r.machine, r.app, m.region, r.site AS worker, m.state, r.protocol, r.internal_port, m.boot ->> '$.port' AS port, m.cordoned,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status, r.service
FROM service_rows AS r JOIN machine_rows AS m ON m.site = r.site AND m.key = r.machine LEFT JOIN sites AS s ON s.site = r.site WHERE m.placed;

CREATE VIEW volumes AS -- Every volume, with its latest snapshots.
SELECT r.key AS id, r.app, r.name, r.region, r.site AS worker, r.state, r.size_gb, r.encrypted, r.machine,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at,
       r.order_id, r.error, r.spec, r.snapshots, r.app_id
FROM volume_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE r.placed;

CREATE VIEW images AS -- The images that workers have.
SELECT r.key AS digest, r.name, r.site AS worker, r.bytes,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.used_at, 0) / 1e9, 'unixepoch') AS used_at,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status
FROM image_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW checks AS -- Health checks of machines, and what they have found. status: passing, warning, critical.
SELECT r.key AS machine, r.app, r.region, r.check_ ->> '$.name' AS name, r.site AS worker, r.check_ ->> '$.status' AS status,
       r.check_ ->> '$.output' AS output, strftime('%Y-%m-%dT%H:%M:%fZ', r.check_ ->> '$.updated_at') AS updated_at,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status
FROM (SELECT m.*, iif(c.type = 'object', c.value, '{}') AS check_ FROM machine_rows AS m JOIN json_each(m.checks) AS c WHERE m.placed) AS r
LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW apps AS -- Apps, but for the default one while it has no record. What a former app of the name has left is not counted as this one's.
SELECT r.key AS name, r.id, r.org, r.network,
       (SELECT count(*) FROM machine_rows AS m WHERE m.app = r.key AND m.app_id IN (r.id, '') AND m.placed) AS machines,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at
FROM app_rows AS r WHERE r.deleted_at IS NULL;

CREATE VIEW secrets AS -- Secrets of apps, without their values, which are sealed. A machine of an app has them from its start on.
SELECT r.app, r.name, r.digest, r.version,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at
FROM secret_rows AS r WHERE r.name <> '';

CREATE VIEW releases AS -- What apps were deployed as, the last few times. status is what the client said: pending, running, complete, failed, interrupted.
SELECT r.key AS id, r.app, r.version, r.status, r.strategy, r.image, r.created_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at,
       r.description, r.definition, r.metadata, r.app_id
FROM release_rows AS r;

CREATE VIEW cancelled_orders AS -- Orders whose cancellation could not be delivered to a worker; it must not fill them.
SELECT r.order_id, r.worker, strftime('%Y-%m-%dT%H:%M:%fZ', r.at / 1e9, 'unixepoch') AS at
FROM cancelled_rows AS r;

CREATE VIEW forgotten_workers AS -- Workers that an operator has said will not come back, for a week.
SELECT r.key AS id, r.region, strftime('%Y-%m-%dT%H:%M:%fZ', r.at / 1e9, 'unixepoch') AS at
FROM forgotten_rows AS r;

CREATE VIEW tokens AS -- Tokens of clients that brokers have made. org is * for everything; without apps or machines all are meant.
SELECT r.key AS id, r.name, r.org, r.apps, r.machines, r.read_only, r.made_by, r.made_with,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.expires_at, 0) / 1e9, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.revoked_at / 1e9, 'unixepoch') AS revoked_at
FROM token_rows AS r;

CREATE VIEW members AS -- Every server that was heard of, and how far its log has come here.
SELECT n.site AS id, CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       max(t.epoch) AS epoch, t.seq, strftime('%Y-%m-%dT%H:%M:%fZ', t.at / 1e9, 'unixepoch') AS written_at
FROM (SELECT site FROM sites UNION SELECT site FROM streams) AS n
LEFT JOIN streams AS t ON t.site = n.site LEFT JOIN sites AS s ON s.site = n.site
GROUP BY n.site;

CREATE VIEW quarantined AS -- Rows that were refused, and why.
SELECT q.site, q.epoch, q.seq, q.tbl AS in_table, q.key, q.reason, strftime('%Y-%m-%dT%H:%M:%fZ', q.since / 1e9, 'unixepoch') AS since
FROM quarantine AS q;
