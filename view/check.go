package view

import (
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
)

// maxName bounds the names of tables and columns.
const maxName = 64

// entry is a row of a transaction after it was checked against the schema.
type entry struct {
	table, key string
	shared     bool
	deleted    bool
	clock      Clock
	change     columns // of an owned row; of a shared one it says all
	proof      proof   // of a shared one
}

// check says whether a row that site says fits the schema, and gives it in the
// form in which it is merged. What it refuses is this row's fault alone.
func (all tables) check(site bourse.WorkerID, r Row) (entry, error) {
	e := entry{table: r.Table, key: r.Key, deleted: r.Deleted, clock: r.Clock, shared: r.Clock != 0}
	if err := checkName("table", r.Table); err != nil {
		return e, err
	}
	if err := checkKey(r.Key); err != nil {
		return e, err
	}
	t := all[r.Table]
	switch {
	case t != nil && t.shared != e.shared:
		return e, fmt.Errorf("clock %d in table %s", r.Clock, r.Table)
	case r.Table == TableWorkers && r.Key != string(site):
		return e, fmt.Errorf("%s says something of worker %s", site, bourse.Quoted(r.Key))
	case r.Deleted && r.Table == TableApps:
		return e, fmt.Errorf("an app is deleted by its deleted_at")
	case r.Deleted && len(r.Columns) > 0:
		return e, fmt.Errorf("a deleted row with columns")
	case len(r.Columns) > MaxColumns:
		return e, fmt.Errorf("%d columns, at most %d", len(r.Columns), MaxColumns)
	}
	e.change = make(columns, 0, len(r.Columns))
	for name, v := range r.Columns {
		value, err := t.value(name, v)
		if err != nil {
			return e, fmt.Errorf("column %s: %w", bourse.Quoted(name), err)
		}
		e.change = append(e.change, column{name, value})
	}
	slices.SortFunc(e.change, byName)
	return e, checkSize(e.change)
}

// value says whether a column may have a value, and gives nil for its default.
// A nil table is one of a newer release.
func (t *table) value(name string, v any) (Value, error) {
	if err := checkName("column", name); err != nil {
		return nil, err
	}
	if slices.Contains(bookkeeping, name) {
		return nil, fmt.Errorf("it is not for a row to say")
	}
	value, err := scalar(v)
	if err != nil || value == nil {
		return nil, err
	}
	if n := valueSize(value); n > MaxValue {
		return nil, fmt.Errorf("%d bytes, at most %d", n, MaxValue)
	}
	if t == nil {
		return value, nil
	}
	d := t.find(name)
	if d == nil {
		return value, nil
	}
	if value, err = d.fit(value); err != nil || equalValues(value, d.fallback) {
		return nil, err
	}
	return value, nil
}

// fit says whether a value is of the column's type.
func (d *definition) fit(v Value) (Value, error) {
	switch v := v.(type) {
	case int64:
		if d.kind == kindInteger {
			return v, nil
		}
		if d.kind == kindReal {
			return float64(v), nil
		}
	case float64:
		if d.kind == kindReal {
			return v, nil
		}
	case string:
		if d.kind == kindText {
			return v, nil
		}
		if d.kind == kindJSON {
			return v, checkJSON(v)
		}
	case []byte:
		if d.kind == kindBlob {
			return v, nil
		}
	}
	return nil, fmt.Errorf("a value of type %T does not fit it", v)
}

// checkSize bounds a row, as a whole too: what a site says of one in several
// transactions has to fit into a snapshot.
func checkSize(c columns) error {
	if len(c) > MaxColumns {
		return fmt.Errorf("%d columns, at most %d", len(c), MaxColumns)
	}
	if n := c.size(); n > MaxRow {
		return fmt.Errorf("%d bytes, at most %d", n, MaxRow)
	}
	return nil
}

func checkKey(s string) error {
	if len(s) == 0 || len(s) > MaxKey {
		return fmt.Errorf("a key of %d bytes, want 1 to %d", len(s), MaxKey)
	}
	if err := checkText(s); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	return nil
}

// checkName admits lower-case identifiers.
func checkName(what, s string) error {
	if len(s) == 0 || len(s) > maxName {
		return fmt.Errorf("a %s's name of %d bytes, want 1 to %d", what, len(s), maxName)
	}
	for i, c := range []byte(s) {
		if c != '_' && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("%s: no name of a %s", bourse.Quoted(s), what)
		}
	}
	return nil
}
