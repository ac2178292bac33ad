package schema

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/view/wire"
)

// row returns the row with the given key, and whether it exists. In an owned table, the row must
// belong to the given site.
func (t *table) row(c *sqlite.Conn, site bourse.WorkerID, key string) (r wire.Version, ok bool, err error) {
	err = Query(c, t.get, func(s *sqlite.Stmt) error {
		ok = true
		r, err = t.scan(s)
		return err
	}, t.address(site, key)...)
	return r, ok, err
}

func (t *table) address(site bourse.WorkerID, key string) []any {
	if t.Shared {
		return []any{key}
	}
	return []any{site, key}
}

// scan decodes the current row of a result as a version. The statement must begin with t.all.
func (t *table) scan(s *sqlite.Stmt) (wire.Version, error) {
	r := wire.Version{Table: t.name, Shared: t.Shared, Key: s.ColumnText(1), Hash: uint64(s.ColumnInt64(5)), Clock: wire.Clock(s.ColumnInt64(6))}
	r.Stamp = StampOf(s)
	r.Columns = make(wire.Columns, 0, len(t.Defs))
	for i, d := range t.Defs {
		if v := ValueAt(s, 7+i); v != nil && !wire.EqualValues(v, d.fallback) {
			r.Columns = append(r.Columns, wire.Column{Name: d.Name, Value: v})
		}
	}
	return r, nil
}

// StampOf reads a stamp from the current row of a result: the site from the first column, and
// epoch, seq and at from the third, fourth and fifth columns.
func StampOf(s *sqlite.Stmt) wire.Stamp {
	of := wire.Stream{Site: bourse.WorkerID(s.ColumnText(0)), Epoch: uint64(s.ColumnInt64(2))}
	return wire.Stamp{Position: wire.Position{Stream: of, Seq: uint64(s.ColumnInt64(3))}, At: s.ColumnInt64(4)}
}

// store inserts or replaces a row.
func (t *table) store(c *sqlite.Conn, r wire.Version) error {
	s, err := c.Prepare(t.put)
	if err != nil {
		return err
	}
	s.BindText(1, string(r.Site))
	s.BindText(2, r.Key)
	s.BindInt64(3, int64(r.Epoch))
	s.BindInt64(4, int64(r.Seq))
	s.BindInt64(5, r.At)
	s.BindInt64(6, int64(r.Hash))
	next := 7
	switch {
	case t.Shared:
		s.BindInt64(7, int64(r.Clock))
		next++
	case t.placed:
		s.BindBool(7, r.Placed)
		next++
	}
	cols := r.Columns
	for i := range t.Defs {
		d := &t.Defs[i]
		value := d.fallback
		if len(cols) > 0 && cols[0].Name == d.Name {
			value, cols = cols[0].Value, cols[1:]
		}
		bind(s, next+i, value)
	}
	_, err = s.Step()
	return err
}

func (t *table) remove(c *sqlite.Conn, site bourse.WorkerID, key string) error {
	return Run(c, t.delete, t.address(site, key)...)
}
