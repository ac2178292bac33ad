package schema

import (
	"maps"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/view/wire"
)

// Find returns the stored version of a row, and whether the file contains one. The version of a shared row may be a
// tombstone. site is used only for owned rows.
func (all Tables) Find(c *sqlite.Conn, name string, shared bool, site bourse.WorkerID, key string) (wire.Version, bool, error) {
	r, ok, err := all[name].row(c, site, key)
	if ok || err != nil || !shared {
		return r, ok, err
	}
	return findTombstone(c, name, key)
}

// Store stores version r with its proof. If old is not nil, r replaces it.
func (all Tables) Store(c *sqlite.Conn, old *wire.Version, r wire.Version) error {
	if err := all.storeRow(c, old, r); err != nil {
		return err
	}
	if r.Shared && r.Proof.By != nil {
		return putProof(c, r)
	}
	return nil
}

func (all Tables) storeRow(c *sqlite.Conn, old *wire.Version, r wire.Version) error {
	if old != nil && old.Deleted != r.Deleted {
		if err := all.removeRow(c, *old); err != nil {
			return err
		}
	}
	if r.Deleted {
		return putTombstone(c, r)
	}
	return all[r.Table].store(c, r)
}

// Remove deletes a row or tombstone, and its proof.
func (all Tables) Remove(c *sqlite.Conn, old wire.Version) error {
	if err := all.removeRow(c, old); err != nil {
		return err
	}
	if old.Shared {
		return deleteProof(c, old)
	}
	return nil
}

func (all Tables) removeRow(c *sqlite.Conn, old wire.Version) error {
	if old.Deleted {
		return deleteTombstone(c, old)
	}
	return all[old.Table].remove(c, old.Site, old.Key)
}

// Each calls do for each row and tombstone in the file.
func (all Tables) Each(c *sqlite.Conn, do func(wire.Version) error) error {
	return all.walk(c, "", do)
}

// EachShared calls do for each shared row and tombstone in the file.
func (all Tables) EachShared(c *sqlite.Conn, do func(wire.Version) error) error {
	shared := maps.Clone(all)
	maps.DeleteFunc(shared, func(_ string, t *table) bool { return !t.Shared })
	return shared.walk(c, "", do)
}

// OfStream calls do for each row and tombstone whose current version was written by a transaction
// of the given stream.
func (all Tables) OfStream(c *sqlite.Conn, of wire.Stream, do func(wire.Version) error) error {
	return all.walk(c, " WHERE site = ? AND epoch = ?", do, of.Site, of.Epoch)
}

func (all Tables) walk(c *sqlite.Conn, where string, do func(wire.Version) error, args ...any) error {
	for _, t := range all.sorted() {
		if err := records(c, t.all+where, t.scan, do, args...); err != nil {
			return err
		}
	}
	return records(c, selectTombstones+where, scanTombstone, do, args...)
}

// Owned returns some of the rows that a site owns, at most limit. If it returns none, the site does
// not own any rows.
func (all Tables) Owned(c *sqlite.Conn, site bourse.WorkerID, limit int) ([]wire.Version, error) {
	for _, t := range all.sorted() {
		if t.Shared {
			continue
		}
		if found, err := collect(c, t.all+" WHERE site = ? LIMIT ?", t.scan, site, limit); err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

// Keys returns the keys of the rows that a site owns in the named table.
func (all Tables) Keys(c *sqlite.Conn, name string, site bourse.WorkerID) ([]string, error) {
	var keys []string
	err := Query(c, "SELECT key FROM "+name+suffix+" WHERE site = ?", func(s *sqlite.Stmt) error {
		keys = append(keys, s.ColumnText(0))
		return nil
	}, site)
	return keys, err
}

// Expired reports whether version r can be removed. A tombstone can be removed if it was written
// before the given time, because every member has either received it in the meantime or must
// replace its view file. Some tables have different rules.
func Expired(r *wire.Version, before wire.Clock) bool {
	switch {
	case r.Clock >= before:
		return false
	case r.Table == wire.TableTokens:
		return tokenExpired(r, before)
	case slices.Contains(dated, r.Table) && !r.Deleted:
		at, _ := r.Columns.Get("expires_at").(int64)
		return at < before.Time().UnixNano()
	case r.Table == wire.TableRemoved && !r.Deleted:
		return r.Clock < clockBefore(before, removedRetention)
	}
	return r.Deleted || slices.Contains(expiring, r.Table)
}

// expiring lists the tables whose rows expire like tombstones: a fixed time after they were
// written.
var expiring = []string{wire.TableCanceled}

// dated lists the tables whose rows expire a fixed time after the time in their expires_at column. The delay is the
// same as for tombstones.
var dated = []string{wire.TableCertified, wire.TableWireGuard}

// removedRetention is how long the record of a removed server is retained. It exceeds the validity of any
// certificate that the server may still have.
const removedRetention = 366 * 24 * time.Hour

// clockBefore returns the clock value of the time that precedes c by d.
func clockBefore(c wire.Clock, d time.Duration) wire.Clock { return wire.ClockAt(c.Time().Add(-d)) }

// revokedRetention is how long a revoked token's record is retained if the token does not have an
// expiry date. A member that was isolated for longer would restore the token without the
// revocation.
const revokedRetention = 366 * 24 * time.Hour

// tokenExpired reports whether a token's record can be removed. If the token has an expiry date, it
// must have expired before the given time. Otherwise, it must have been revoked more than
// revokedRetention before the given time.
func tokenExpired(r *wire.Version, before wire.Clock) bool {
	if at, _ := r.Columns.Get("expires_at").(int64); at > 0 {
		return at < before.Time().UnixNano()
	}
	at, _ := r.Columns.Get("revoked_at").(int64)
	return at > 0 && at < before.Time().Add(-revokedRetention).UnixNano()
}

// FindExpired returns expired versions (see [Expired]), at most limit of each kind.
func (all Tables) FindExpired(c *sqlite.Conn, before wire.Clock, limit int) ([]wire.Version, error) {
	old, err := collect(c, selectTombstones+" WHERE clock < ? LIMIT ?", scanTombstone, int64(before), limit)
	if err != nil {
		return nil, err
	}
	limits := map[string]wire.Clock{wire.TableRemoved: clockBefore(before, removedRetention)}
	for _, name := range expiring {
		limits[name] = before
	}
	for name, before := range limits {
		t := all[name]
		found, err := collect(c, t.all+" WHERE clock < ? LIMIT ?", t.scan, int64(before), limit)
		if err != nil {
			return nil, err
		}
		old = append(old, found...)
	}
	const over = " WHERE clock < ? AND (expires_at BETWEEN 1 AND ? OR expires_at <= 0 AND revoked_at BETWEEN 1 AND ?) LIMIT ?" // the same conditions as in tokenExpired
	t := all[wire.TableTokens]
	tokens, err := collect(c, t.all+over, t.scan, int64(before), before.Time().UnixNano()-1, before.Time().Add(-revokedRetention).UnixNano()-1, limit)
	if err != nil {
		return nil, err
	}
	old = append(old, tokens...)
	for _, name := range dated {
		t := all[name]
		found, err := collect(c, t.all+" WHERE clock < ? AND expires_at < ? LIMIT ?", t.scan, int64(before), before.Time().UnixNano(), limit)
		if err != nil {
			return nil, err
		}
		old = append(old, found...)
	}
	return old, nil
}

// records runs a SELECT, decodes each row of the result as a version, and calls do with it.
func records(c *sqlite.Conn, sql string, scan func(*sqlite.Stmt) (wire.Version, error), do func(wire.Version) error, args ...any) error {
	return Query(c, sql, func(s *sqlite.Stmt) error {
		r, err := scan(s)
		if err != nil {
			return err
		}
		return do(r)
	}, args...)
}

// collect runs a SELECT and returns the rows of the result as versions.
func collect(c *sqlite.Conn, sql string, scan func(*sqlite.Stmt) (wire.Version, error), args ...any) ([]wire.Version, error) {
	var found []wire.Version
	err := records(c, sql, scan, func(r wire.Version) error {
		found = append(found, r)
		return nil
	}, args...)
	return found, err
}
