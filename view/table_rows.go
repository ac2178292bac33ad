package view

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// row reads the row of a key; of an owned table, that of a site.
func (t *table) row(c *sqlite.Conn, site bourse.WorkerID, key string) (r record, ok bool, err error) {
	err = query(c, t.get, func(s *sqlite.Stmt) error {
		ok = true
		r, err = t.scan(s)
		return err
	}, t.address(site, key)...)
	return r, ok, err
}

func (t *table) address(site bourse.WorkerID, key string) []any {
	if t.shared {
		return []any{key}
	}
	return []any{site, key}
}

// scan reads a row of one of the table's SELECTs.
func (t *table) scan(s *sqlite.Stmt) (record, error) {
	r := record{table: t.name, shared: t.shared, key: s.ColumnText(1), hash: uint64(s.ColumnInt64(5)), clock: Clock(s.ColumnInt64(7))}
	r.stamp = stampOf(s)
	r.cols = make(columns, 0, len(t.defs))
	for i, d := range t.defs {
		if v := valueAt(s, 8+i); v != nil && !equalValues(v, d.fallback) {
			r.cols = append(r.cols, column{d.name, v})
		}
	}
	if s.ColumnIsNull(6) {
		return r, nil
	}
	extra, err := decodeExtra(s.ColumnText(6))
	if err != nil {
		return r, fmt.Errorf("extra columns of row %s in %s: %w", bourse.Quoted(r.key), t.name, err)
	}
	r.cols = r.cols.with(extra)
	return r, nil
}

// stampOf reads the site from the first column, and epoch, seq and at from the
// third to fifth.
func stampOf(s *sqlite.Stmt) stamp {
	of := Stream{bourse.WorkerID(s.ColumnText(0)), uint64(s.ColumnInt64(2))}
	return stamp{Position{of, uint64(s.ColumnInt64(3))}, s.ColumnInt64(4)}
}

// store inserts a row or replaces it.
func (t *table) store(c *sqlite.Conn, r record) error {
	s, err := c.Prepare(t.put)
	if err != nil {
		return err
	}
	s.BindText(1, string(r.Site))
	s.BindText(2, r.key)
	s.BindInt64(3, int64(r.Epoch))
	s.BindInt64(4, int64(r.Seq))
	s.BindInt64(5, r.at)
	s.BindInt64(6, int64(r.hash))
	next := 8
	if t.shared {
		s.BindInt64(8, int64(r.clock))
		next++
	}
	var extra columns
	cols := r.cols
	for i := range t.defs {
		d := &t.defs[i]
		for len(cols) > 0 && cols[0].name < d.name {
			extra, cols = append(extra, cols[0]), cols[1:]
		}
		value := d.fallback
		if len(cols) > 0 && cols[0].name == d.name {
			value, cols = cols[0].value, cols[1:]
		}
		bind(s, next+i, value)
	}
	if extra = append(extra, cols...); len(extra) > 0 {
		text, err := encodeExtra(extra)
		if err != nil {
			return err
		}
		s.BindText(7, text)
	}
	_, err = s.Step()
	return err
}

func (t *table) remove(c *sqlite.Conn, site bourse.WorkerID, key string) error {
	return run(c, t.delete, t.address(site, key)...)
}
