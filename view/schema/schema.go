package schema

import (
	_ "embed" // for the schema
)

// SQL is the schema.
//
//go:embed schema.sql
var SQL string

// Current is the schema of the view's file. A file with another schema is replaced:
// the other members have what was in it.
func Current() Definition { return Definition{First: 11, Steps: []string{SQL}} }
