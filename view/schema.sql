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
--   extra  columns of a newer release, as a JSON object; NULL when there are none
--
-- Owned tables have one writer for each row: the worker that it is about. Their
-- key is (site, key), so that no member can touch another's row. Rows of shared
-- tables belong to nobody: clock (a hybrid logical clock) decides which of two
-- versions stands, and site between equal clocks.
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
  PRIMARY KEY (site, epoch)
) WITHOUT ROWID;

-- Whether a site is heard from, as this member sees it.
CREATE TABLE sites (
  site     TEXT    PRIMARY KEY,
  alive    INTEGER,          -- NULL: nobody knows yet
  heard_at INTEGER NOT NULL -- the last time that it was known to be alive, by our clock
) WITHOUT ROWID;

-- How many rows each table has, and the exclusive or of their hashes. shared
-- tells which rows of tables that only a newer release knows are meant.
CREATE TABLE sums (
  tbl    TEXT    NOT NULL,
  shared INTEGER NOT NULL,
  rows   INTEGER NOT NULL,
  sum    INTEGER NOT NULL,
  PRIMARY KEY (tbl, shared)
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

-- Rows of tables that only a newer release knows, kept for those who do.
CREATE TABLE unknown_rows (
  tbl     TEXT    NOT NULL,
  key     TEXT    NOT NULL,
  shared  INTEGER NOT NULL,
  site    TEXT    NOT NULL,
  epoch   INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  clock   INTEGER NOT NULL, -- 0: an owned row
  hash    INTEGER NOT NULL,
  deleted INTEGER NOT NULL DEFAULT 0,
  columns TEXT    NOT NULL, -- as a JSON object
  PRIMARY KEY (tbl, shared, key, site)
) WITHOUT ROWID;
CREATE INDEX unknown_rows_by_stream ON unknown_rows (site, epoch, seq);

-- ---------------------------------------------------------------- owned tables

-- A worker's account of itself. key: the worker's id.
CREATE TABLE worker_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL, extra TEXT,
  region   TEXT    NOT NULL DEFAULT '',
  tag      INTEGER NOT NULL DEFAULT 0,
  version  TEXT    NOT NULL DEFAULT '',
  labels   JSON TEXT    NOT NULL DEFAULT '{}', -- JSON object
  capacity JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: accounts of the ledger, coarse
  free     JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: amounts, coarse
  load     REAL    NOT NULL DEFAULT 0,    -- 0 idle to 1 and more
  drivers  JSON TEXT    NOT NULL DEFAULT '[]', -- JSON array of names
  leaving  INTEGER NOT NULL DEFAULT 0,    -- takes no orders
  PRIMARY KEY (site, key)
) WITHOUT ROWID;

-- A machine. key: its id. Its rows are long: with a rowid they lie in leaves alone,
-- which halves the work of writing and of finding them.
CREATE TABLE machine_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL, extra TEXT,
  app        TEXT    NOT NULL DEFAULT '',
  name       TEXT    NOT NULL DEFAULT '',
  region     TEXT    NOT NULL DEFAULT '',
  order_id   TEXT    NOT NULL DEFAULT '',
  instance   TEXT    NOT NULL DEFAULT '',
  state      TEXT    NOT NULL DEFAULT '',
  config     JSON TEXT    NOT NULL DEFAULT '{}', -- JSON, as the Machines API has it
  takes      JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: amounts of the ledger
  cordoned   INTEGER NOT NULL DEFAULT 0,
  boot       JSON TEXT    NOT NULL DEFAULT '{}', -- JSON: its latest start: number, pid, port, exit
  lease      JSON TEXT,                          -- JSON: owner, description, expires_at; never the nonce
  events     JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: the newest few, newest first
  created_at INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (site, key)
);
CREATE INDEX machine_rows_by_key ON machine_rows (key);
CREATE INDEX machine_rows_by_app ON machine_rows (app, region);

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
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL, extra TEXT,
  app        TEXT    NOT NULL DEFAULT '',
  name       TEXT    NOT NULL DEFAULT '',
  region     TEXT    NOT NULL DEFAULT '',
  state      TEXT    NOT NULL DEFAULT '',
  size_gb    INTEGER NOT NULL DEFAULT 0,
  encrypted  INTEGER NOT NULL DEFAULT 0,
  machine    TEXT    NOT NULL DEFAULT '', -- that it is attached to
  created_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (site, key)
) WITHOUT ROWID;
CREATE INDEX volume_rows_by_key ON volume_rows (key);
CREATE INDEX volume_rows_by_app ON volume_rows (app, key);

-- An image that a worker has. key: its digest.
CREATE TABLE image_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL, extra TEXT,
  name    TEXT    NOT NULL DEFAULT '', -- as it was asked for
  bytes   INTEGER NOT NULL DEFAULT 0,
  used_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (site, key)
) WITHOUT ROWID;
CREATE INDEX image_rows_by_key ON image_rows (key);

-- The result of a health check. key: machine/check.
CREATE TABLE check_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL, extra TEXT,
  machine    TEXT    NOT NULL DEFAULT '',
  name       TEXT    NOT NULL DEFAULT '',
  status     TEXT    NOT NULL DEFAULT '', -- passing, warning, critical
  output     TEXT    NOT NULL DEFAULT '',
  updated_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (site, key)
) WITHOUT ROWID;
CREATE INDEX check_rows_by_machine ON check_rows (machine);

-- --------------------------------------------------------------- shared tables

-- An app. key: its name. Which of two apps of one name stands is decided by
-- bourse.App.Merge, not by the clock: the first one made does.
CREATE TABLE app_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL, extra TEXT,
  id         TEXT    NOT NULL DEFAULT '',
  life       INTEGER NOT NULL DEFAULT 0,
  org        TEXT    NOT NULL DEFAULT '',
  network    TEXT    NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL DEFAULT 0,
  deleted_at INTEGER -- NULL while it lives
) WITHOUT ROWID;
CREATE INDEX app_rows_by_stream ON app_rows (site, epoch, seq);

-- A secret of an app. key: app/name. The value is sealed before it gets here.
CREATE TABLE secret_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL, extra TEXT,
  app        TEXT    NOT NULL DEFAULT '',
  name       TEXT    NOT NULL DEFAULT '',
  digest     TEXT    NOT NULL DEFAULT '',
  sealed     BLOB,
  version    INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX secret_rows_by_stream ON secret_rows (site, epoch, seq);

-- A release of an app. key: app/version.
CREATE TABLE release_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL, extra TEXT,
  app        TEXT    NOT NULL DEFAULT '',
  version    INTEGER NOT NULL DEFAULT 0,
  status     TEXT    NOT NULL DEFAULT '',
  image      TEXT    NOT NULL DEFAULT '',
  definition JSON TEXT    NOT NULL DEFAULT '{}', -- JSON
  created_by TEXT    NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX release_rows_by_stream ON release_rows (site, epoch, seq);

-- An order that must not be filled by a worker that could not be told so.
-- key: order/worker.
CREATE TABLE cancelled_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL, extra TEXT,
  order_id TEXT NOT NULL DEFAULT '',
  worker   TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX cancelled_rows_by_worker ON cancelled_rows (worker);
CREATE INDEX cancelled_rows_by_stream ON cancelled_rows (site, epoch, seq);

-- ------------------------------------------------------------ what people ask

-- host_status tells whether the host that a row is about is heard from: ok,
-- unreachable (the row may be out of date, heard_at says since when) or unknown
-- (only its rows were heard of). Times are RFC 3339 in UTC.

-- Cpus are what the ledger counts: cores times overcommit.
CREATE VIEW workers AS
SELECT r.site AS id, r.region, CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       (SELECT count(*) FROM machine_rows AS m WHERE m.site = r.site) AS machines,
       (SELECT iif(a.type = 'object', a.value, '{}') ->> '$.total' / 1e3 FROM json_each(r.capacity) AS a WHERE iif(a.type = 'object', a.value, '{}') ->> '$.resource' = 'cpu') AS cpus,
       (SELECT iif(a.type = 'object', a.value, '{}') ->> '$.amount' / 1e3 FROM json_each(r.free) AS a WHERE iif(a.type = 'object', a.value, '{}') ->> '$.resource' = 'cpu') AS cpus_free,
       (SELECT iif(a.type = 'object', a.value, '{}') ->> '$.total' FROM json_each(r.capacity) AS a WHERE iif(a.type = 'object', a.value, '{}') ->> '$.resource' = 'memory') AS memory_mb,
       (SELECT iif(a.type = 'object', a.value, '{}') ->> '$.amount' FROM json_each(r.free) AS a WHERE iif(a.type = 'object', a.value, '{}') ->> '$.resource' = 'memory') AS memory_mb_free,
       r.load, r.leaving, r.version, printf('%06x', r.tag) AS tag, r.drivers, r.labels, r.capacity, r.free,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.at / 1e9, 'unixepoch') AS updated_at
FROM worker_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

-- A line of a worker's ledger: what is free is rounded down by up to an eighth,
-- in the resource's own unit (cpu: thousandths, memory and disk: MiB).
CREATE VIEW capacity AS
SELECT r.site AS worker, r.region, r.line ->> '$.resource' AS resource, r.line ->> '$.total' AS total, r.line ->> '$.used' AS used,
       r.line ->> '$.total' - r.line ->> '$.used' AS free, r.leaving,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status
FROM (SELECT w.*, iif(a.type = 'object', a.value, '{}') AS line FROM worker_rows AS w JOIN json_each(w.capacity) AS a) AS r
LEFT JOIN sites AS s ON s.site = r.site;

-- What is free is counted where an order would find it.
CREATE VIEW regions AS
SELECT region, count(*) AS workers, sum(host_status = 'ok') AS workers_ok, sum(leaving) AS workers_leaving, sum(machines) AS machines,
       total(cpus_free) FILTER (WHERE host_status = 'ok' AND NOT leaving) AS cpus_free,
       CAST(total(memory_mb_free) FILTER (WHERE host_status = 'ok' AND NOT leaving) AS INTEGER) AS memory_mb_free
FROM workers GROUP BY region;

CREATE VIEW machines AS
SELECT r.key AS id, r.app, r.name, r.region, r.site AS worker, r.state,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       r.config ->> '$.image' AS image, r.config ->> '$.guest.cpu_kind' AS cpu_kind, r.config ->> '$.guest.cpus' AS cpus,
       r.config ->> '$.guest.memory_mb' AS memory_mb, r.boot ->> '$.pid' AS pid, r.boot ->> '$.port' AS port,
       coalesce(r.boot ->> '$.number', 0) AS starts, r.boot ->> '$.exit.code' AS exit_code, r.lease ->> '$.owner' AS lease_owner, r.cordoned,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at,
       r.instance AS instance_id, r.order_id, coalesce(r.config -> '$.metadata', '{}') AS metadata, r.config, r.boot, r.lease, r.events
FROM machine_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

-- The newest few of each machine. was: its state before.
CREATE VIEW events AS
SELECT r.event ->> '$.id' AS id, strftime('%Y-%m-%dT%H:%M:%fZ', r.event ->> '$.at') AS at, r.key AS machine, r.app, r.region,
       r.site AS worker, r.event ->> '$.type' AS type, r.event ->> '$.from' AS was, r.event ->> '$.state' AS state,
       r.event ->> '$.source' AS source, r.event ->> '$.exit.code' AS exit_code, r.event ->> '$.exit.error' AS error,
       coalesce(r.event ->> '$.exit.oom_killed', 0) AS oom_killed
FROM (SELECT m.*, iif(e.type = 'object', e.value, '{}') AS event FROM machine_rows AS m JOIN json_each(m.events) AS e) AS r;

CREATE VIEW services AS
SELECT r.machine, r.app, m.region, r.site AS worker, m.state, r.protocol, r.internal_port, m.boot ->> '$.port' AS port, m.cordoned,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status, r.service
FROM service_rows AS r JOIN machine_rows AS m ON m.site = r.site AND m.key = r.machine LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW volumes AS
SELECT r.key AS id, r.app, r.name, r.region, r.site AS worker, r.state, r.size_gb, r.encrypted, r.machine,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at
FROM volume_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW images AS
SELECT r.key AS digest, r.name, r.site AS worker, r.bytes,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.used_at, 0) / 1e9, 'unixepoch') AS used_at,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status
FROM image_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW checks AS
SELECT r.machine, r.name, r.site AS worker, r.status, r.output,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status
FROM check_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW apps AS
SELECT r.key AS name, r.id, r.org, r.network, (SELECT count(*) FROM machine_rows AS m WHERE m.app = r.key) AS machines,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at
FROM app_rows AS r WHERE r.deleted_at IS NULL;

CREATE VIEW secrets AS
SELECT r.app, r.name, r.digest, r.version,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at
FROM secret_rows AS r;

CREATE VIEW releases AS
SELECT r.app, r.version, r.status, r.image, r.definition, r.created_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at
FROM release_rows AS r;

CREATE VIEW cancelled_orders AS
SELECT r.order_id, r.worker, strftime('%Y-%m-%dT%H:%M:%fZ', r.at / 1e9, 'unixepoch') AS at
FROM cancelled_rows AS r;

-- Every server that was heard of, and how far its log has come here.
CREATE VIEW members AS
SELECT n.site AS id, CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       max(t.epoch) AS epoch, t.seq, strftime('%Y-%m-%dT%H:%M:%fZ', t.at / 1e9, 'unixepoch') AS written_at
FROM (SELECT site FROM sites UNION SELECT site FROM streams) AS n
LEFT JOIN streams AS t ON t.site = n.site LEFT JOIN sites AS s ON s.site = n.site
GROUP BY n.site;

-- Rows that were refused.
CREATE VIEW quarantined AS
SELECT q.site, q.epoch, q.seq, q.tbl AS in_table, q.key, q.reason, strftime('%Y-%m-%dT%H:%M:%fZ', q.since / 1e9, 'unixepoch') AS since
FROM quarantine AS q;
