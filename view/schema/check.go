package schema

import (
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// Entry is a row of a transaction after it was checked against the schema.
type Entry struct {
	Table, Key string
	Shared     bool
	Deleted    bool
	Clock      wire.Clock
	Change     wire.Columns // of an owned row; of a shared one it says all
	Proof      wire.Proof   // of a shared one
}

// Version is what a shared row of another site says.
func (e *Entry) Version(st wire.Stamp) wire.Version {
	return wire.Version{
		Stamp: st, Table: e.Table, Key: e.Key, Shared: true, Deleted: e.Deleted, Clock: e.Clock,
		Columns: wire.Columns(nil).With(e.Change), Proof: e.Proof,
	}
}

// Check reports whether a row that site says fits the schema, and returns it in the
// form in which it is merged. What it refuses is this row's fault alone.
func (all Tables) Check(site bourse.WorkerID, r wire.Row) (Entry, error) {
	e := Entry{Table: r.Table, Key: r.Key, Deleted: r.Deleted, Clock: r.Clock, Shared: r.Clock != 0}
	if err := checkName("table", r.Table); err != nil {
		return e, err
	}
	if err := checkKey(r.Key); err != nil {
		return e, err
	}
	t := all[r.Table]
	switch {
	case t == nil:
		return e, fmt.Errorf("there is no table %s", r.Table)
	case t.Shared != e.Shared:
		return e, fmt.Errorf("clock %d in table %s", r.Clock, r.Table)
	case r.Table == wire.TableWorkers && r.Key != string(site):
		return e, fmt.Errorf("%s says something of worker %s", site, bourse.Quoted(r.Key))
	case r.Deleted && r.Table == wire.TableApps:
		return e, fmt.Errorf("an app is deleted by its deleted_at")
	case r.Deleted && r.Table == wire.TableTokens:
		return e, fmt.Errorf("a token is ended by its revoked_at")
	case r.Deleted && len(r.Columns) > 0:
		return e, fmt.Errorf("a deleted row with columns")
	case len(r.Columns) > wire.MaxColumns:
		return e, fmt.Errorf("%d columns, at most %d", len(r.Columns), wire.MaxColumns)
	}
	e.Change = make(wire.Columns, 0, len(r.Columns))
	for name, v := range r.Columns {
		value, err := t.value(name, v)
		if err != nil {
			return e, fmt.Errorf("column %s: %w", bourse.Quoted(name), err)
		}
		e.Change = append(e.Change, wire.Column{Name: name, Value: value})
	}
	slices.SortFunc(e.Change, wire.ByName)
	return e, CheckSize(e.Change)
}

// value checks that a column may have a value, and returns nil for its default.
func (t *table) value(name string, v any) (wire.Value, error) {
	if err := checkName("column", name); err != nil {
		return nil, err
	}
	d := t.find(name)
	if d == nil {
		return nil, fmt.Errorf("there is no such column in table %s", t.name)
	}
	value, err := wire.Scalar(v)
	if err != nil || value == nil {
		return nil, err
	}
	if n := wire.ValueSize(value); n > wire.MaxValue {
		return nil, fmt.Errorf("%d bytes, at most %d", n, wire.MaxValue)
	}
	if value, err = d.fit(value); err != nil || wire.EqualValues(value, d.fallback) {
		return nil, err
	}
	return value, nil
}

// fit reports whether a value is of the column's type.
func (d *definition) fit(v wire.Value) (wire.Value, error) {
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
			return v, wire.CheckJSON(v)
		}
	case []byte:
		if d.kind == kindBlob {
			return v, nil
		}
	}
	return nil, fmt.Errorf("a value of type %T does not fit it", v)
}

// CheckSize bounds a row, as a whole too: what a site says of one in several
// transactions has to fit into a snapshot.
func CheckSize(c wire.Columns) error {
	if len(c) > wire.MaxColumns {
		return fmt.Errorf("%d columns, at most %d", len(c), wire.MaxColumns)
	}
	if n := c.Size(); n > wire.MaxRow {
		return fmt.Errorf("%d bytes, at most %d", n, wire.MaxRow)
	}
	return nil
}

func checkKey(s string) error {
	if len(s) == 0 || len(s) > wire.MaxKey {
		return fmt.Errorf("a key of %d bytes, want 1 to %d", len(s), wire.MaxKey)
	}
	if err := wire.CheckText(s); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	return nil
}

// checkName admits lower-case identifiers.
func checkName(what, s string) error {
	if len(s) == 0 || len(s) > wire.MaxName {
		return fmt.Errorf("a %s's name of %d bytes, want 1 to %d", what, len(s), wire.MaxName)
	}
	for i, c := range []byte(s) {
		if c != '_' && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("%s: no name of a %s", bourse.Quoted(s), what)
		}
	}
	return nil
}
