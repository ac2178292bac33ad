-- Schema 4: what sites write is signed. Nothing of before can be proven: owned
-- rows go and come back from their sites; see adoptUnsigned for shared ones.

ALTER TABLE streams ADD COLUMN birth BLOB NOT NULL DEFAULT x''; -- what the site's signatures are checked with: a certificate, or a key
ALTER TABLE streams ADD COLUMN rows  INTEGER NOT NULL DEFAULT 0; -- owned ones
ALTER TABLE streams ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0; -- of theirs, about

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
