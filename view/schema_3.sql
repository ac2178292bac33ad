-- Schema 3: machines and volumes say which app they are of by its id too. A
-- name may have belonged to another app before.

ALTER TABLE machine_rows ADD COLUMN app_id TEXT NOT NULL DEFAULT '';
ALTER TABLE volume_rows ADD COLUMN app_id TEXT NOT NULL DEFAULT '';

DROP INDEX machine_rows_by_app;
CREATE INDEX machine_rows_by_app ON machine_rows (app, region, app_id);

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
       r.private_ip, r.network, r.image ->> '$.digest' AS image_digest, r.config ->> '$.mounts[0].volume' AS volume, r.app_id
FROM machine_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

DROP VIEW volumes;
CREATE VIEW volumes AS
SELECT r.key AS id, r.app, r.name, r.region, r.site AS worker, r.state, r.size_gb, r.encrypted, r.machine,
       CASE s.alive WHEN 1 THEN 'ok' WHEN 0 THEN 'unreachable' ELSE 'unknown' END AS host_status,
       CASE s.alive WHEN 0 THEN strftime('%Y-%m-%dT%H:%M:%fZ', s.heard_at / 1e9, 'unixepoch') END AS heard_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.updated_at, 0) / 1e9, 'unixepoch') AS updated_at,
       r.order_id, r.error, r.spec, r.snapshots, r.app_id
FROM volume_rows AS r LEFT JOIN sites AS s ON s.site = r.site;

-- What a former app of the name has left is not counted as this one's.
DROP VIEW apps;
CREATE VIEW apps AS
SELECT r.key AS name, r.id, r.org, r.network,
       (SELECT count(*) FROM machine_rows AS m WHERE m.app = r.key AND m.app_id IN (r.id, '')) AS machines,
       strftime('%Y-%m-%dT%H:%M:%fZ', nullif(r.created_at, 0) / 1e9, 'unixepoch') AS created_at
FROM app_rows AS r WHERE r.deleted_at IS NULL;
