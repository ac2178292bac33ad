-- The view: this server's copy of the data about the whole cluster. It may be
-- deleted at any time; other members restore it.
--
-- Replicated data is in tables named *_rows. SQL queries use the views with the
-- same names without the suffix. The views omit the bookkeeping columns and add
-- host_status and heard_at, which show whether a row is current.
--
-- Every row has
--   site   the member that wrote it (its server ID)
--   epoch  that member's epoch; it starts a new one when it has lost its view
--   seq    the number of its transaction within the epoch, from 1, without gaps
--   at     when it wrote the row, by its own clock: nanoseconds since 1970
--   hash   64-bit hash of the row's contents, for checksums
--
-- Each row of an owned table has one writer: the worker that it describes. The
-- key is (site, key), so that no member can change another's rows. Rows of shared
-- tables belong to nobody: of two versions, the one with the greater clock (a
-- hybrid logical clock) wins, or the one with the greater site if the clocks are
-- equal.
--
-- Machines and volumes belong to an app only if a broker has placed them there:
--   placement  the broker's signed statement (order, kind, app, worker); NULL in a
--              cluster without certificates, where no placement is required
--   placed     1 if the statement is valid and matches the row. Each member
--              determines this itself; it is not replicated.
--
-- Times are nanoseconds since 1970. Columns of type JSON TEXT contain compact,
-- valid JSON; other values are rejected, so queries can rely on it.
--
-- In a transaction, NULL stands for a column's default value.

-- ---------------------------------------------------------------- bookkeeping

-- A single row that identifies this file.
CREATE TABLE meta (
  one        INTEGER PRIMARY KEY CHECK (one = 1),
  cluster    TEXT    NOT NULL,
  site       TEXT    NOT NULL, -- this server
  epoch      INTEGER NOT NULL, -- this server's epoch
  clock      INTEGER NOT NULL, -- the greatest hybrid logical clock written or received
  boot       TEXT    NOT NULL, -- ID of the host's boot, '' if unknown; if it has changed, the last commits may be missing
  touched_at INTEGER NOT NULL  -- when this file was last in use
);

-- How far each stream has been applied. A stream is one epoch of a site.
CREATE TABLE streams (
  site  TEXT    NOT NULL,
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL, -- the last applied transaction
  hash  INTEGER NOT NULL, -- exclusive or of the hashes of the stream's owned rows
  at    INTEGER NOT NULL, -- when the site wrote that transaction, by its own clock
  birth BLOB    NOT NULL DEFAULT x'', -- verifies the site's signatures: a certificate or a public key
  rows  INTEGER NOT NULL DEFAULT 0, -- number of owned rows
  bytes INTEGER NOT NULL DEFAULT 0, -- their approximate size
  PRIMARY KEY (site, epoch)
) WITHOUT ROWID;

-- Which sites this member can reach.
CREATE TABLE sites (
  site     TEXT    PRIMARY KEY,
  alive    INTEGER,          -- NULL: not known yet
  heard_at INTEGER NOT NULL -- when it was last reachable, by this server's clock
) WITHOUT ROWID;

-- The number of rows in each table, and the exclusive or of their hashes.
CREATE TABLE sums (
  tbl    TEXT    NOT NULL PRIMARY KEY,
  shared INTEGER NOT NULL, -- whether the table is shared
  rows   INTEGER NOT NULL,
  sum    INTEGER NOT NULL
) WITHOUT ROWID;

-- Rows that could not be applied, with their origins. Only the latest ones are retained.
CREATE TABLE quarantine (
  id       INTEGER PRIMARY KEY,
  site     TEXT    NOT NULL,
  epoch    INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  tbl      TEXT    NOT NULL,
  key      TEXT    NOT NULL,
  reason   TEXT    NOT NULL,
  row      BLOB,            -- as received; NULL if it was too large
  since    INTEGER NOT NULL, -- by this server's clock
  retry_at INTEGER           -- when to try again; NULL: never
);

-- Deleted rows of shared tables, which prevent older versions from being restored.
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

-- The signature of each current shared row or tombstone.
CREATE TABLE proofs (
  tbl   TEXT NOT NULL,
  key   TEXT NOT NULL,
  birth BLOB NOT NULL, -- ID in births
  sig   BLOB NOT NULL,
  PRIMARY KEY (tbl, key)
) WITHOUT ROWID;

-- Birth certificates to which proofs refer. The ID is a prefix of the SHA-256 hash.
CREATE TABLE births (
  id    BLOB PRIMARY KEY,
  birth BLOB NOT NULL
) WITHOUT ROWID;

-- ---------------------------------------------------------------- owned tables

-- Workers, as they describe themselves. key: the worker's ID.
CREATE TABLE worker_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL,
  region   TEXT    NOT NULL DEFAULT '',
  tag      INTEGER NOT NULL DEFAULT 0,
  version  TEXT    NOT NULL DEFAULT '',
  labels   JSON TEXT    NOT NULL DEFAULT '{}', -- JSON object
  capacity JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: accounts of the ledger when the row was written
  free     JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: amounts, rounded
  load     REAL    NOT NULL DEFAULT 0,    -- 0 is idle; may exceed 1
  drivers  JSON TEXT    NOT NULL DEFAULT '[]', -- JSON array of names
  leaving  INTEGER NOT NULL DEFAULT 0,    -- accepts no orders, because it is about to stop
  cordoned INTEGER NOT NULL DEFAULT 0,    -- accepts no orders, because an operator has cordoned it
  mesh     JSON TEXT,                     -- JSON: key, proof, endpoint of its end of the mesh; NULL if it has none
  PRIMARY KEY (site, key)
) WITHOUT ROWID;

-- Machines. key: the machine's ID. Their rows are long. With a rowid, SQLite stores them only in leaf pages,
-- which halves the cost of writing and finding them.
CREATE TABLE machine_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL,
  app        TEXT    NOT NULL DEFAULT '',
  app_id     TEXT    NOT NULL DEFAULT '', -- distinguishes the app from earlier apps with the same name
  name       TEXT    NOT NULL DEFAULT '',
  region     TEXT    NOT NULL DEFAULT '',
  order_id   TEXT    NOT NULL DEFAULT '',
  placement  BLOB,
  placed     INTEGER NOT NULL DEFAULT 0,
  instance   TEXT    NOT NULL DEFAULT '',
  state      TEXT    NOT NULL DEFAULT '',
  config     JSON TEXT    NOT NULL DEFAULT '{}', -- JSON, as in the Machines API
  takes      JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: amounts of the ledger
  cordoned   INTEGER NOT NULL DEFAULT 0,
  boot       JSON TEXT    NOT NULL DEFAULT '{}', -- JSON: the latest start: number, pid, port, exit
  lease      JSON TEXT,                          -- JSON: owner, description, expires_at; never the nonce
  checks     JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: the status of each health check
  events     JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: the latest few, newest first
  image      JSON TEXT,                          -- JSON: the image to which config.image was resolved: registry, repository, tag, digest, labels
  private_ip TEXT    NOT NULL DEFAULT '', -- in the machine's own network
  network    TEXT    NOT NULL DEFAULT '', -- name of its private network
  created_at INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (site, key)
);
CREATE INDEX machine_rows_by_key ON machine_rows (key);
CREATE INDEX machine_rows_by_app ON machine_rows (app, region, app_id, placed);
CREATE INDEX machine_rows_unplaced ON machine_rows (site) WHERE NOT placed;

-- The services in machines' configs. Maintained by the triggers below, not replicated.
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

-- Volumes. key: the volume's ID.
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
  machine    TEXT    NOT NULL DEFAULT '', -- the machine to which it is attached
  spec       JSON TEXT    NOT NULL DEFAULT '{}', -- JSON: the order
  takes      JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: amounts of the ledger
  error      TEXT    NOT NULL DEFAULT '', -- why it failed
  snapshots  JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: the latest few, newest last
  created_at INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (site, key)
) WITHOUT ROWID;
CREATE INDEX volume_rows_by_key ON volume_rows (key);
CREATE INDEX volume_rows_by_app ON volume_rows (app, key);
CREATE INDEX volume_rows_unplaced ON volume_rows (site) WHERE NOT placed;

-- Images on workers. key: the image's digest.
CREATE TABLE image_rows (
  site TEXT NOT NULL, key TEXT NOT NULL,
  epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL,
  name    TEXT    NOT NULL DEFAULT '', -- as requested
  bytes   INTEGER NOT NULL DEFAULT 0,
  used_at INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (site, key)
) WITHOUT ROWID;
CREATE INDEX image_rows_by_key ON image_rows (key);

-- --------------------------------------------------------------- shared tables

-- Apps. key: the app's name. Of two apps with the same name, the one that was created first wins.
-- bourse.App.Merge decides this, not the clock.
CREATE TABLE app_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  id         TEXT    NOT NULL DEFAULT '',
  generation INTEGER NOT NULL DEFAULT 0,
  org        TEXT    NOT NULL DEFAULT '',
  network    TEXT    NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL DEFAULT 0,
  deleted_at INTEGER -- NULL: not deleted
) WITHOUT ROWID;
CREATE INDEX app_rows_by_stream ON app_rows (site, epoch, seq);

-- Secrets of apps. key: the app's ID, a slash and the secret's name. The value is encrypted before it is
-- stored. A row without a name, with the app's ID and // in its key, is a broker's mark: the version of its
-- latest change of the app's secrets. sealed then contains the versions of other brokers that it had seen.
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

-- Releases of apps. key: the release's ID, a ULID, so no two brokers write the same one. The version follows
-- from the order of the IDs; the column contains the version that the broker expected.
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
  definition JSON TEXT    NOT NULL DEFAULT '{}', -- JSON: the app's definition, from the client
  metadata   JSON TEXT    NOT NULL DEFAULT '{}', -- JSON: other data from the client
  created_by TEXT    NOT NULL DEFAULT '',
  created_at INTEGER NOT NULL DEFAULT 0,
  updated_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX release_rows_by_stream ON release_rows (site, epoch, seq);
CREATE INDEX release_rows_by_app ON release_rows (app_id, key);

-- Canceled orders whose cancellation could not be delivered to a worker, which must not fill them.
-- key: order/worker.
CREATE TABLE canceled_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  order_id TEXT NOT NULL DEFAULT '',
  worker   TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX canceled_rows_by_worker ON canceled_rows (worker);
CREATE INDEX canceled_rows_by_stream ON canceled_rows (site, epoch, seq);

-- Servers that an operator has removed. key: the server's ID. All rows that it owned in epochs up to until are
-- invalid; those of later epochs are valid. Of two versions, the one with the later until wins.
CREATE TABLE removed_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  until  INTEGER NOT NULL DEFAULT 0,
  role   TEXT    NOT NULL DEFAULT '',
  region TEXT    NOT NULL DEFAULT '',
  tag    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Client tokens, as required to verify them. key: the token's ID. A token's permissions never change; of two
-- versions, a revoked one wins.
CREATE TABLE token_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  digest     TEXT    NOT NULL DEFAULT '', -- SHA-256 of the token, in hex
  name       TEXT    NOT NULL DEFAULT '',
  org        TEXT    NOT NULL DEFAULT '', -- '*': all organizations; '': none
  apps       JSON TEXT    NOT NULL DEFAULT '[]', -- JSON: names and IDs; empty: all apps of the organization
  machines   JSON TEXT    NOT NULL DEFAULT '[]', -- JSON array of IDs; empty: all machines of the apps
  read_only  INTEGER NOT NULL DEFAULT 0,
  made_by    TEXT    NOT NULL DEFAULT '', -- name of the token's creator
  made_with  TEXT    NOT NULL DEFAULT '', -- ID of the token with which it was created; '' if that token came from a file
  created_at INTEGER NOT NULL DEFAULT 0,
  expires_at INTEGER NOT NULL DEFAULT 0,  -- 0: never
  revoked_at INTEGER -- NULL: not revoked
) WITHOUT ROWID;

-- Brokers and proxies with certificates. key: the server's ID. Of two versions, the one with the newer
-- certificate wins. A certificate that was issued before the server was removed does not count.
CREATE TABLE certified_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  role       TEXT    NOT NULL DEFAULT '',
  region     TEXT    NOT NULL DEFAULT '',
  issued_at  INTEGER NOT NULL DEFAULT 0,
  expires_at INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Laptops in private networks. key: a random ID. A row changes only when the laptop is removed; of two versions, a
-- removed one wins.
CREATE TABLE wireguard_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  name       TEXT    NOT NULL DEFAULT '',
  org        TEXT    NOT NULL DEFAULT '',
  network    TEXT    NOT NULL DEFAULT '', -- the private network, org/name
  app        TEXT    NOT NULL DEFAULT '', -- the app for whose network it was created; '': none
  app_id     TEXT    NOT NULL DEFAULT '',
  public_key TEXT    NOT NULL DEFAULT '', -- WireGuard's, in base64
  worker     TEXT    NOT NULL DEFAULT '', -- the entry: the worker to which it connects
  made_by    TEXT    NOT NULL DEFAULT '', -- name of the creator
  made_with  TEXT    NOT NULL DEFAULT '', -- ID of the token with which it was created; '' if that token came from a file
  created_at INTEGER NOT NULL DEFAULT 0,
  expires_at INTEGER NOT NULL DEFAULT 0,
  removed_at INTEGER -- NULL: not removed
) WITHOUT ROWID;

-- Policies by which brokers rank workers. key: the region, or *, a slash and the use.
CREATE TABLE policy_rows (
  key TEXT NOT NULL PRIMARY KEY,
  site TEXT NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, clock INTEGER NOT NULL, hash INTEGER NOT NULL,
  region TEXT      NOT NULL DEFAULT '', -- '': all regions without a policy of their own
  use    TEXT      NOT NULL DEFAULT '', -- rank or shadow
  policy JSON TEXT NOT NULL DEFAULT '{}', -- JSON: the policy's document
  set_by TEXT      NOT NULL DEFAULT '', -- name of the token with which it was set
  set_at INTEGER   NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- ----------------------------------------------------------- views for queries

-- "bourse sql --tables" prints the comment after AS as the description.

-- host_status is the status of the host that a row describes: ok, unreachable (the
-- row may be out of date since heard_at) or unknown (only its rows have been
-- received). Times are RFC 3339 in UTC.

CREATE VIEW workers AS -- Workers and their capacity, as of updated_at. cpus is the number of cores times overcommit; free is rounded down, for placement; capacity is exact.
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

CREATE VIEW capacity AS -- Workers' ledgers, exact as of updated_at. cpu is in thousandths, memory and disk are in MiB; used includes machines, volumes, tasks and holds.
SELECT r.site AS worker, r.region, r.line ->> '$.resource' AS resource, r.line ->> '$.total' AS total, r.line ->> '$.used' AS used,
       max(0, r.line ->> '$.total' - r.line ->> '$.used') AS free, r.leaving, r.cordoned,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.at / 1e9, 'unixepoch') AS updated_at
FROM (SELECT w.*, iif(a.type = 'object', a.value, '{}') AS line FROM worker_rows AS w JOIN json_each(w.capacity) AS a) AS r
LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW regions AS -- Capacity by region. Free capacity includes only workers that are reachable and accept orders.
SELECT region, count(*) AS workers, sum(host_status = 'ok') AS workers_ok, sum(leaving) AS workers_leaving, sum(cordoned) AS workers_cordoned, sum(machines) AS machines,
       total(cpus_free) FILTER (WHERE host_status = 'ok' AND NOT leaving AND NOT cordoned) AS cpus_free,
       CAST(total(memory_mb_free) FILTER (WHERE host_status = 'ok' AND NOT leaving AND NOT cordoned) AS INTEGER) AS memory_mb_free
FROM workers GROUP BY region;

CREATE VIEW machines AS -- All machines, with their configs and latest starts.
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

CREATE VIEW unplaced_machines AS -- Machines that a worker lists in an app although no broker has placed them there. They belong to no app.
SELECT r.key AS id, r.site AS worker, r.app AS claimed_app, r.name, r.region, r.state, r.order_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at
FROM machine_rows AS r WHERE NOT r.placed;

CREATE VIEW events AS -- The latest events of each machine. was is its previous state.
SELECT r.event ->> '$.id' AS id, strftime('%Y-%m-%dT%H:%M:%fZ', r.event ->> '$.at') AS at, r.key AS machine, r.app, r.region,
       r.site AS worker, r.event ->> '$.type' AS type, r.event ->> '$.from' AS was, r.event ->> '$.state' AS state,
       r.event ->> '$.source' AS source, r.event ->> '$.exit.code' AS exit_code, r.event ->> '$.exit.error' AS error,
       coalesce(r.event ->> '$.exit.oom_killed', 0) AS oom_killed
FROM (SELECT m.*, iif(e.type = 'object', e.value, '{}') AS event FROM machine_rows AS m JOIN json_each(m.events) AS e WHERE m.placed) AS r;

CREATE VIEW services AS -- The services in machines' configs.
SELECT r.machine, r.app, m.region, r.site AS worker, m.state, r.protocol, r.internal_port, m.boot ->> '$.port' AS port, m.cordoned,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status, r.service
FROM service_rows AS r JOIN machine_rows AS m ON m.site = r.site AND m.key = r.machine LEFT JOIN sites AS s ON s.site = r.site WHERE m.placed;

CREATE VIEW volumes AS -- All volumes, with their latest snapshots.
SELECT r.key AS id, r.app, r.name, r.region, r.site AS worker, r.state, r.size_gb, r.encrypted, r.machine,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at,
       r.order_id, r.error, r.spec, r.snapshots, r.app_id
FROM volume_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE r.placed;

CREATE VIEW images AS -- The images on workers.
SELECT r.key AS digest, r.name, r.site AS worker, r.bytes,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.used_at, 0) / 1e9, 'unixepoch') AS used_at,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status
FROM image_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW checks AS -- Machines' health checks with their results. status: passing, warning, critical.
SELECT r.key AS machine, r.app, r.region, r.check_ ->> '$.name' AS name, r.site AS worker, r.check_ ->> '$.status' AS status,
       r.check_ ->> '$.output' AS output, strftime('%Y-%m-%dT%H:%M:%fZ', r.check_ ->> '$.updated_at') AS updated_at,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status
FROM (SELECT m.*, iif(c.type = 'object', c.value, '{}') AS check_ FROM machine_rows AS m JOIN json_each(m.checks) AS c WHERE m.placed) AS r
LEFT JOIN sites AS s ON s.site = r.site;

CREATE VIEW apps AS -- Apps, except the default app if it has no record. Machines of an earlier app with the same name are not counted.
SELECT r.key AS name, r.id, r.org, r.network,
       (SELECT count(*) FROM machine_rows AS m WHERE m.app = r.key AND m.app_id IN (r.id, '') AND m.placed) AS machines,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at
FROM app_rows AS r WHERE r.deleted_at IS NULL;

CREATE VIEW secrets AS -- Apps' secrets, without their values, which are encrypted. A machine receives its app's secrets when it starts.
SELECT r.app, r.name, r.digest, r.version,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at
FROM secret_rows AS r WHERE r.name <> '';

CREATE VIEW releases AS -- Apps' latest releases. The client reports the status: pending, running, complete, failed, interrupted.
SELECT r.key AS id, r.app, r.version, r.status, r.strategy, r.image, r.created_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at,
       r.description, r.definition, r.metadata, r.app_id
FROM release_rows AS r;

CREATE VIEW canceled_orders AS -- Orders whose cancellation could not be delivered to a worker; it must not fill them.
SELECT r.order_id, r.worker, strftime('%Y-%m-%dT%H:%M:%fZ', r.at / 1e9, 'unixepoch') AS at
FROM canceled_rows AS r;

CREATE VIEW removed_members AS -- Servers that an operator has removed from the cluster in the last year.
SELECT r.key AS id, r.role, r.region, strftime('%Y-%m-%dT%H:%M:%fZ', r.at / 1e9, 'unixepoch') AS at
FROM removed_rows AS r;

CREATE VIEW certified_members AS -- Brokers and proxies with certificates, whether they run or not. Removed ones are omitted.
SELECT r.key AS id, r.role, r.region, CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.issued_at, 0) / 1e9, 'unixepoch') AS issued_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.expires_at, 0) / 1e9, 'unixepoch') AS expires_at
FROM certified_rows AS r LEFT JOIN sites AS s ON s.site = r.key LEFT JOIN removed_rows AS d ON d.key = r.key
WHERE d.until IS NULL OR r.issued_at / 1000000 > d.until;

CREATE VIEW tokens AS -- Client tokens that brokers have created. org is * for all organizations; empty apps or machines mean all.
SELECT r.key AS id, r.name, r.org, r.apps, r.machines, r.read_only, r.made_by, r.made_with,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.expires_at, 0) / 1e9, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.revoked_at / 1e9, 'unixepoch') AS revoked_at
FROM token_rows AS r;

CREATE VIEW wireguard_peers AS -- Laptops in private networks, with the workers through which they connect. app is the app for whose network a laptop was added.
SELECT r.key AS id, r.name, r.org, r.network, r.app, r.worker, r.public_key, r.made_by, r.made_with,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.expires_at, 0) / 1e9, 'unixepoch') AS expires_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.removed_at / 1e9, 'unixepoch') AS removed_at
FROM wireguard_rows AS r;

CREATE VIEW policies AS -- Policies by which workers are ranked (use: rank), or with which the ranking is compared (shadow). An empty region means all others.
SELECT r.region, r.use, r.policy ->> '$.name' AS name, r.set_by, strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.set_at, 0) / 1e9, 'unixepoch') AS set_at, r.policy
FROM policy_rows AS r;

CREATE VIEW members AS -- All known servers, and how much of their logs this server has applied.
SELECT n.site AS id, CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       max(t.epoch) AS epoch, t.seq, strftime('%Y-%m-%dT%H:%M:%fZ', t.at / 1e9, 'unixepoch') AS written_at
FROM (SELECT site FROM sites UNION SELECT site FROM streams) AS n
LEFT JOIN streams AS t ON t.site = n.site LEFT JOIN sites AS s ON s.site = n.site
GROUP BY n.site;

CREATE VIEW quarantined AS -- Rejected rows, with the reasons.
SELECT q.site, q.epoch, q.seq, q.tbl AS in_table, q.key, q.reason, strftime('%Y-%m-%dT%H:%M:%fZ', q.since / 1e9, 'unixepoch') AS since
FROM quarantine AS q;
