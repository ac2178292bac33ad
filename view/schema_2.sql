-- Schema 2: what others may know of images, addresses and volumes. The columns
-- are NULL or empty in rows of older members.

ALTER TABLE machine_rows ADD COLUMN image JSON TEXT; -- JSON: what config.image meant when this version was made: registry, repository, tag, digest, labels
ALTER TABLE machine_rows ADD COLUMN private_ip TEXT NOT NULL DEFAULT ''; -- in the machine's own network
ALTER TABLE machine_rows ADD COLUMN network TEXT NOT NULL DEFAULT ''; -- the private network that it is of

ALTER TABLE volume_rows ADD COLUMN order_id TEXT NOT NULL DEFAULT '';
ALTER TABLE volume_rows ADD COLUMN spec JSON TEXT NOT NULL DEFAULT '{}'; -- JSON: as ordered
ALTER TABLE volume_rows ADD COLUMN takes JSON TEXT NOT NULL DEFAULT '[]'; -- JSON: amounts of the ledger
ALTER TABLE volume_rows ADD COLUMN error TEXT NOT NULL DEFAULT ''; -- why it failed
ALTER TABLE volume_rows ADD COLUMN snapshots JSON TEXT NOT NULL DEFAULT '[]'; -- JSON: the newest few, newest last
ALTER TABLE volume_rows ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;

DROP VIEW machines;
CREATE VIEW machines AS
SELECT r.key AS id, r.app, r.name, r.region, r.site AS worker, r.state,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       r.config ->> '$.image' AS image, r.config ->> '$.guest.cpu_kind' AS cpu_kind, r.config ->> '$.guest.cpus' AS cpus,
       r.config ->> '$.guest.memory_mb' AS memory_mb, r.boot ->> '$.pid' AS pid, r.boot ->> '$.port' AS port,
       coalesce(r.boot ->> '$.number', 0) AS starts, r.boot ->> '$.exit.code' AS exit_code, r.lease ->> '$.owner' AS lease_owner, r.cordoned,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at,
       r.instance AS instance_id, r.order_id, coalesce(r.config -> '$.metadata', '{}') AS metadata, r.config, r.boot, r.lease, r.events,
       r.private_ip, r.network, r.image ->> '$.digest' AS image_digest, r.config ->> '$.mounts[0].volume' AS volume
FROM machine_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

DROP VIEW volumes;
CREATE VIEW volumes AS
SELECT r.key AS id, r.app, r.name, r.region, r.site AS worker, r.state, r.size_gb, r.encrypted, r.machine,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at,
       r.order_id, r.error, r.spec, r.snapshots
FROM volume_rows AS r LEFT JOIN sites AS s ON s.site = r.site;
