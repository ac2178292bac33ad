package schema

import (
	_ "embed" // for the schema

	"github.com/bourse-dev/bourse/view/sqlfile"
)

// SQL is the schema.
//
//go:embed schema.sql
var SQL string

// Current is the schema of the view's file. A file with another schema is replaced:
// the other members have what was in it.
func Current() sqlfile.Schema { return sqlfile.Schema{First: 11, Steps: []string{SQL}} }
