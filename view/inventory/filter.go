package inventory

import "strings"

// condition asks a column for a value; an empty one asks nothing.
type condition struct{ column, value string }

// filtered ends a statement with conditions, those that narrow it most first.
// The first leads to its index; the others carry a plus, so that SQLite does not
// choose theirs instead, but for the region, which is in the index of an app.
func filtered(from string, conditions ...condition) (string, []any) {
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
