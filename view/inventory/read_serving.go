package inventory

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
)

// Serving reads the machines whose configs contain services. It caches the machines, so that each read decodes
// only rows that have changed. The zero value is ready to use. Serving is not safe for concurrent use.
type Serving struct{ rows map[ownKey]servingRow }

// ownKey is the key of an owned row.
type ownKey struct {
	site bourse.WorkerID
	key  string
}

// servingRow contains a decoded machine, and the version of the row that it was decoded from.
type servingRow struct {
	seq, epoch, hash int64
	machine          *bourse.Machine
}

// Triggers in schema.sql update service_rows when configs change.
const servingSQL = `SELECT r.site, r.key, r.epoch, r.seq, r.hash FROM (SELECT DISTINCT site, machine FROM service_rows) AS s
	CROSS JOIN machine_rows AS r ON r.site = s.site AND r.key = s.machine AND r.placed`

// Read returns the machines that have services, in no particular order. They share memory with the cache, so callers
// must not modify anything that they point to.
func (s *Serving) Read(c *sqlite.Conn) ([]bourse.Machine, error) {
	before := s.rows
	s.rows = make(map[ownKey]servingRow, len(before))
	var changed []ownKey
	err := schema.Query(c, servingSQL, func(st *sqlite.Stmt) error {
		k := ownKey{bourse.WorkerID(st.ColumnText(0)), st.ColumnText(1)}
		now := servingRow{epoch: st.ColumnInt64(2), seq: st.ColumnInt64(3), hash: st.ColumnInt64(4)}
		if old, ok := before[k]; ok && old.epoch == now.epoch && old.seq == now.seq && old.hash == now.hash {
			now.machine = old.machine
		} else {
			changed = append(changed, k)
		}
		s.rows[k] = now
		return nil
	})
	if err == nil {
		err = s.decode(c, changed)
	}
	if err != nil {
		s.rows = before // restore the old cache, because the new one is incomplete
		return nil, err
	}
	out := make([]bourse.Machine, 0, len(s.rows))
	for _, row := range s.rows {
		if row.machine.ID.Validate() == nil { // users cannot refer to a machine with an invalid ID
			out = append(out, *row.machine)
		}
	}
	return removeDuplicates(c, out, func(m *bourse.Machine) idClaim { return idClaim{string(m.ID), m.Worker, m.ID.Tag()} })
}

const servingMachineSQL = `SELECT ` + machineColumns + ` FROM machine_rows AS r WHERE r.site = ? AND r.key = ?`

// decode reads the machines with the given keys into the cache.
func (s *Serving) decode(c *sqlite.Conn, keys []ownKey) error {
	var r cells
	for _, k := range keys {
		row := s.rows[k]
		row.machine = new(bourse.Machine)
		err := schema.Query(c, servingMachineSQL, func(st *sqlite.Stmt) error {
			r.Stmt = st
			readMachine(&r, row.machine)
			return nil
		}, k.site, k.key)
		if err != nil {
			return err
		}
		s.rows[k] = row
	}
	return nil
}
