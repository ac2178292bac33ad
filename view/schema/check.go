package schema

import (
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// Entry is a row that has been checked against the schema.
type Entry struct {
	Table, Key string
	Shared     bool
	Deleted    bool
	Clock      wire.Clock
	Change     wire.Columns // the changed columns of an owned row, or all columns of a shared row
	Proof      wire.Proof   // set only for shared rows
}

// Version converts e, which must be a shared row, to a version of the row. st identifies the
// transaction that wrote the version.
func (e *Entry) Version(st wire.Stamp) wire.Version {
	return wire.Version{
		Stamp: st, Table: e.Table, Key: e.Key, Shared: true, Deleted: e.Deleted, Clock: e.Clock,
		Columns: wire.Columns(nil).With(e.Change), Proof: e.Proof,
	}
}

// Check checks whether a site's row fits the schema. It returns the row in the form required for
// merging. If Check returns an error, the other rows of the same transaction remain valid.
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
		return e, fmt.Errorf("table %s does not exist", r.Table)
	case t.Shared != e.Shared:
		return e, fmt.Errorf("clock %d is invalid in table %s", r.Clock, r.Table)
	case r.Table == wire.TableWorkers && r.Key != string(site):
		return e, fmt.Errorf("%s cannot write the row of worker %s", site, bourse.Quoted(r.Key))
	case r.Deleted && r.Table == wire.TableApps:
		return e, fmt.Errorf("to delete an app, set deleted_at")
	case r.Deleted && r.Table == wire.TableTokens:
		return e, fmt.Errorf("to revoke a token, set revoked_at")
	case r.Deleted && r.Table == wire.TableWireGuard:
		return e, fmt.Errorf("to remove a laptop, set removed_at")
	case r.Deleted && len(r.Columns) > 0:
		return e, fmt.Errorf("a deleted row must not contain columns")
	case len(r.Columns) > wire.MaxColumns:
		return e, fmt.Errorf("the row has %d columns, but at most %d are allowed", len(r.Columns), wire.MaxColumns)
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

// value checks a column's value and returns it. It returns nil if the value is the column's
// default.
func (t *table) value(name string, v any) (wire.Value, error) {
	if err := checkName("column", name); err != nil {
		return nil, err
	}
	d := t.find(name)
	if d == nil {
		return nil, fmt.Errorf("table %s has no such column", t.name)
	}
	value, err := wire.Scalar(v)
	if err != nil || value == nil {
		return nil, err
	}
	if n := wire.ValueSize(value); n > wire.MaxValue {
		return nil, fmt.Errorf("the value has %d bytes, but at most %d are allowed", n, wire.MaxValue)
	}
	if value, err = d.convert(value); err != nil || wire.EqualValues(value, d.fallback) {
		return nil, err
	}
	return value, nil
}

// convert converts v to the column's type. It returns an error if that is impossible.
func (d *definition) convert(v wire.Value) (wire.Value, error) {
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
	return nil, fmt.Errorf("a value of type %T does not fit the column", v)
}

// CheckSize returns an error if a complete row is too large for a snapshot. Even if each
// transaction is small enough, a row can become too large when several transactions write its
// columns one after another.
func CheckSize(c wire.Columns) error {
	if len(c) > wire.MaxColumns {
		return fmt.Errorf("the row has %d columns, but at most %d are allowed", len(c), wire.MaxColumns)
	}
	if n := c.Size(); n > wire.MaxRow {
		return fmt.Errorf("the row has %d bytes, but at most %d are allowed", n, wire.MaxRow)
	}
	return nil
}

func checkKey(s string) error {
	if len(s) == 0 || len(s) > wire.MaxKey {
		return fmt.Errorf("the key has %d bytes, but 1 to %d are required", len(s), wire.MaxKey)
	}
	if err := wire.CheckText(s); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	return nil
}

// checkName returns an error unless s consists of lower-case letters, digits and underscores, and
// does not begin with a digit.
func checkName(what, s string) error {
	if len(s) == 0 || len(s) > wire.MaxName {
		return fmt.Errorf("the %s name has %d bytes, but 1 to %d are required", what, len(s), wire.MaxName)
	}
	for i, c := range []byte(s) {
		if c != '_' && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("%s is not a valid %s name", bourse.Quoted(s), what)
		}
	}
	return nil
}
