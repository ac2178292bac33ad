package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/view/wire"
)

// kind is the type of the values in a column.
type kind int

const (
	kindInteger kind = iota + 1
	kindReal
	kindText
	kindJSON
	kindBlob
)

// definition describes a column.
type definition struct {
	Name     string
	kind     kind
	fallback wire.Value // default value; nil means NULL
}

// table describes a replicated table and contains the SQL statements that read and write it.
type table struct {
	name   string // name on the wire
	Shared bool
	placed bool         // whether the table has the column placedColumn
	Defs   []definition // sorted by name
	get    string       // parameters: site and key in an owned table, otherwise key
	all    string
	put    string
	delete string // parameters as for get
}

// Tables contains the replicated tables, by the names that are used on the wire.
type Tables map[string]*table

// suffix ends the name of each replicated table in the file. It is not part of the table's name on the wire. The names
// of other tables do not end with it.
const suffix = "_rows"

// internalColumns lists the columns of replicated tables that rows on the wire cannot contain.
var internalColumns = []string{"site", "key", "epoch", "seq", "at", "clock", "hash", placedColumn}

// placedColumn is the column that records whether a row's placement is valid.
const placedColumn = "placed"

// Read reads the definitions of the tables from the file, so schema.sql is the only place that
// defines them.
func Read(c *sqlite.Conn) (Tables, error) {
	var names []string
	err := Query(c, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE '%\_rows' ESCAPE '\'`, func(s *sqlite.Stmt) error {
		names = append(names, s.ColumnText(0))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	all := Tables{}
	for _, name := range names {
		t, err := readTable(c, name)
		if err != nil {
			return nil, fmt.Errorf("read the schema of %s: %w", name, err)
		}
		if t != nil {
			all[t.name] = t
		}
	}
	return all, nil
}

// readTable reads the definition of one table. If the table's primary key is neither (site, key)
// nor key, the table is not replicated, and readTable returns nil.
func readTable(c *sqlite.Conn, physical string) (*table, error) {
	t := &table{name: strings.TrimSuffix(physical, suffix)}
	var defaults, primary []string
	err := Query(c, `SELECT name, type, dflt_value, pk FROM pragma_table_info(?) ORDER BY name`, func(s *sqlite.Stmt) error {
		name := s.ColumnText(0)
		if s.ColumnInt64(3) > 0 {
			primary = append(primary, name)
		}
		if slices.Contains(internalColumns, name) {
			t.placed = t.placed || name == placedColumn
			return nil
		}
		t.Defs = append(t.Defs, definition{Name: name, kind: kindOf(s.ColumnText(1))})
		defaults = append(defaults, s.ColumnText(2))
		return nil
	}, physical)
	if err != nil {
		return nil, err
	}
	slices.Sort(primary)
	switch strings.Join(primary, " ") {
	case "key site":
	case "key":
		t.Shared = true
	default:
		return nil, nil
	}
	for i, expression := range defaults {
		if expression == "" {
			continue
		}
		err := Query(c, "SELECT "+expression, func(s *sqlite.Stmt) error {
			t.Defs[i].fallback = ValueAt(s, 0)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	t.statements(physical)
	return t, nil
}

func kindOf(declared string) kind {
	switch {
	case strings.HasPrefix(declared, "JSON"):
		return kindJSON
	case strings.Contains(declared, "INT"):
		return kindInteger
	case strings.Contains(declared, "TEXT"):
		return kindText
	case strings.Contains(declared, "REAL"):
		return kindReal
	}
	return kindBlob
}

// statements builds the table's SQL statements. They contain only names from schema.sql, so they
// need no quoting.
func (t *table) statements(physical string) {
	clock, where, key := "0", "site = ? AND key = ?", "site, key"
	own := []string{"site", "key", "epoch", "seq", "at", "hash"}
	switch {
	case t.Shared:
		clock, where, key = "clock", "key = ?", "key"
		own = append(own, "clock")
	case t.placed:
		own = append(own, placedColumn)
	}
	names := own
	for _, d := range t.Defs {
		names = append(names, `"`+d.Name+`"`)
	}
	selected := strings.Join(slices.Concat([]string{"site", "key", "epoch", "seq", "at", "hash", clock}, names[len(own):]), ", ")
	t.all = "SELECT " + selected + " FROM " + physical
	t.get = t.all + " WHERE " + where
	t.delete = "DELETE FROM " + physical + " WHERE " + where
	var sets []string
	for _, n := range names {
		if n != "key" && (t.Shared || n != "site") {
			sets = append(sets, n+" = excluded."+n)
		}
	}
	t.put = "INSERT INTO " + physical + " (" + strings.Join(names, ", ") + ") VALUES (" +
		strings.TrimSuffix(strings.Repeat("?, ", len(names)), ", ") + ") ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(sets, ", ")
}

// find returns the definition of a column, or nil if there is none.
func (t *table) find(name string) *definition {
	i, ok := slices.BinarySearchFunc(t.Defs, name, func(d definition, name string) int { return strings.Compare(d.Name, name) })
	if !ok {
		return nil
	}
	return &t.Defs[i]
}

// sorted returns the tables, sorted by name.
func (all Tables) sorted() []*table {
	out := slices.Collect(maps.Values(all))
	slices.SortFunc(out, func(a, b *table) int { return strings.Compare(a.name, b.name) })
	return out
}
