package inventory

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
)

// Serving reads the machines whose configs have services, again and again: it keeps
// what it has read, and decodes only the rows that others have taken the place of.
// Its zero value is ready; it is not safe for concurrent use.
type Serving struct{ rows map[ownKey]servingRow }

// ownKey is the key of an owned row.
type ownKey struct {
	site bourse.WorkerID
	key  string
}

// servingRow is a machine with the row that it was read from.
type servingRow struct {
	seq, epoch, hash int64
	machine          *bourse.Machine
}

// The triggers of service_rows keep it in step with the configs.
const servingSQL = `SELECT r.site, r.key, r.epoch, r.seq, r.hash FROM (SELECT DISTINCT site, machine FROM service_rows) AS s
	CROSS JOIN machine_rows AS r ON r.site = s.site AND r.key = s.machine AND r.placed`

// Read asks for the machines, in no order. What they refer to is shared, and must not be
// changed.
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
		s.rows = before // half of it is of no use
		return nil, err
	}
	out := make([]bourse.Machine, 0, len(s.rows))
	for _, row := range s.rows {
		if row.machine.ID.Validate() == nil { // or no one could ask for it
			out = append(out, *row.machine)
		}
	}
	return settleOwners(c, out, func(m *bourse.Machine) claimant { return claimant{string(m.ID), m.Worker, m.ID.Tag()} })
}

const servingMachineSQL = `SELECT ` + machineColumns + ` FROM machine_rows AS r WHERE r.site = ? AND r.key = ?`

// decode reads the machines of some rows.
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
