package kv

import "bytes"

// recoverLog makes what the file and the log hold the present snapshot. What the
// file has not is moved there by a checkpoint later: a disk that is full keeps no
// one from reading.
func (d *DB) recoverLog() error {
	if err := d.saltLog(); err != nil {
		return err
	}
	found, moved, err := d.readLog()
	if err != nil {
		return err
	}
	if err := d.readFile(); err != nil {
		return err
	}
	if err := d.wal.resume(moved, found.records); err != nil {
		return unavailable(err)
	}
	if len(found.records) == 0 {
		return nil
	}
	now := d.shown()
	now.small = now.small.Copy()
	for _, r := range found.records {
		if err := d.replay(r.body, &now); err != nil {
			return err
		}
	}
	d.beginCheckpoint(now)
	d.growAhead()
	return nil
}

// readFile makes what the file holds the present snapshot.
func (d *DB) readFile() error {
	t, err := d.file.begin(d.spoiled)
	if err != nil {
		return unavailable(err)
	}
	defer t.end()
	d.filed = t.readSmall()
	d.show(snapshot{latest: newChanges(), small: d.filed})
	return d.failure()
}

// readLog returns what the log has and the file has not, and the number of the
// last record that is in the file.
func (d *DB) readLog() (found walContents, moved uint64, err error) {
	moved, _, err = d.logKeys()
	if err != nil {
		return found, moved, err
	}
	found, err = d.wal.scan(moved)
	if err == nil && len(found.damage) > 0 {
		err = damaged(found.damage)
	}
	return found, moved, err
}

// replay makes the changes of a record in a snapshot.
func (d *DB) replay(body []byte, now *snapshot) error {
	return d.cfg.Schema.readOps(body, func(c change) {
		switch {
		case !d.cfg.Schema.small(c.bucket):
			now.latest.Set(c)
		case c.value == nil:
			now.small.Delete(c)
		default:
			now.small.Set(c)
		}
	})
}

// logKeys returns the number of the last record that is in the file, and the
// log's salt, nil when it has none yet.
func (d *DB) logKeys() (moved uint64, salt []byte, err error) {
	err = d.file.View(func(t Tx) error {
		moved, salt = uint64Of(t.Get(Meta, keyMoved)), bytes.Clone(t.Get(Meta, keySalt))
		return nil
	})
	if err != nil {
		err = unavailable(err)
	}
	return moved, salt, err
}

// saltLog reads the log's salt, or makes that of a new one.
func (d *DB) saltLog() error {
	_, key, err := d.logKeys()
	if err != nil {
		return err
	}
	if len(key) == len(d.wal.salt) {
		d.wal.salt = salt(key)
		return nil
	}
	d.wal.salt = newSalt()
	err = d.file.Update(func(t Tx) error { return t.Put(Meta, keySalt, d.wal.salt[:]) })
	if err != nil {
		return unavailable(err)
	}
	return nil
}
