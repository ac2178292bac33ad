package query

import (
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
)

// maxFunctions bounds how often a statement may name a function, those in the
// SQL views included: code without a loop cannot be interrupted. A pattern
// counts for as many as matchCost: matching one against the longest text takes
// a third of a second.
const (
	maxFunctions = 256
	matchCost    = 16
)

// sealed are the columns that are never read: they carry what is secret, or
// rows of others as they came, which may.
var sealed = map[string][]string{
	"secret_rows": {"sealed"},
	"quarantine":  {"row"},
}

// pragmas are those that only tell the shape of tables. None names a file.
var pragmas = words("table_info table_xinfo table_list index_list index_info index_xinfo")

// virtual are the tables that SQLite makes up and that may be read.
var virtual = words("json_each json_tree pragma_table_info pragma_table_xinfo pragma_table_list pragma_index_list pragma_index_info pragma_index_xinfo")

// rules is what SQLite asks while it prepares one statement. It also learns
// which tables the statement reads.
type rules struct {
	known     map[string]bool // tables and views of the file, in lower case
	touched   map[string]bool // those that were read
	functions int
	why       string // of the first refusal
}

// Authorize is called by SQLite for each thing that a statement would do.
func (r *rules) Authorize(a sqlite.Action) sqlite.AuthResult {
	switch a.Type() {
	case sqlite.OpSelect, sqlite.OpRecursive:
		return sqlite.AuthResultOK
	case sqlite.OpRead:
		return r.read(a)
	case sqlite.OpPragma:
		if pragmas[strings.ToLower(a.Pragma())] {
			return sqlite.AuthResultOK
		}
		return r.deny("PRAGMA " + a.Pragma() + " is not allowed")
	case sqlite.OpFunction:
		return r.call(functionOf(a))
	default:
		return r.deny("only reading is allowed")
	}
}

func (r *rules) call(name string) sqlite.AuthResult {
	name = strings.ToLower(name)
	if !functions[name] {
		return r.deny("function " + name + " is not allowed")
	}
	r.functions++
	if name == "like" || name == "glob" {
		r.functions += matchCost - 1
	}
	if r.functions > maxFunctions {
		return r.deny("too many functions or patterns in one statement")
	}
	return sqlite.AuthResultOK
}

func (r *rules) deny(why string) sqlite.AuthResult {
	if r.why == "" {
		r.why = why
	}
	return sqlite.AuthResultDeny
}

func (r *rules) read(a sqlite.Action) sqlite.AuthResult {
	table, column := strings.ToLower(a.Table()), strings.ToLower(a.Column())
	if db := a.Database(); db != "main" && db != "" {
		return r.deny("only the view itself can be read, not " + db)
	}
	if slices.Contains(sealed[table], column) {
		return r.deny(table + "." + column + " is not for reading: name the columns that you want")
	}
	switch {
	case r.known[table]:
		r.touched[table] = true
	case virtual[table], table == "sqlite_master", table == "sqlite_schema":
	case column == "": // count(*) of a common table expression, whose own reading is asked for apart
	default:
		return r.deny("table " + a.Table() + " is not for reading")
	}
	return sqlite.AuthResultOK
}

func words(s string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		set[w] = true
	}
	return set
}
