package inventory

import "strings"

// condition matches the rows whose column has the given value. If the value is empty, the condition
// matches all rows.
type condition struct{ column, value string }

// where appends conditions to a statement and returns the statement with its arguments. Callers
// pass the most selective condition first, which determines the index that SQLite uses. where
// prefixes the other columns with a plus sign, which keeps SQLite from using their indexes. The
// region is an exception, because it is part of the app's index.
func where(from string, conditions ...condition) (string, []any) {
	var where []string
	var args []any
	for _, c := range conditions {
		if c.value == "" {
			continue
		}
		if len(where) > 0 && c.column != "r.region" {
			c.column = "+" + c.column
		}
		where, args = append(where, c.column+" = ?"), append(args, c.value)
	}
	if len(where) == 0 {
		return from + "TRUE", nil
	}
	return from + strings.Join(where, " AND "), args
}
