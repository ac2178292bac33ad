package query

import (
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"
)

// maxFunctions is the maximum number of function calls in a statement, including those in the SQL
// views that it uses. The limit is necessary because a statement without a loop cannot be
// interrupted. A LIKE or GLOB counts as matchCost calls, because matching one pattern against the
// longest text takes a third of a second.
const (
	maxFunctions = 256
	matchCost    = 16
)

// secretColumns lists columns that no statement may read, because they contain secrets, or raw rows of
// other sites, which may include secrets.
var secretColumns = map[string][]string{
	"secret_rows": {"sealed"},
	"quarantine":  {"row"},
}

// pragmas lists the permitted pragmas. They only describe tables, and none of them accepts a file
// name.
var pragmas = wordSet("table_info table_xinfo table_list index_list index_info index_xinfo")

// virtual lists the SQLite virtual tables that statements may read.
var virtual = wordSet("json_each json_tree pragma_table_info pragma_table_xinfo pragma_table_list pragma_index_list pragma_index_info pragma_index_xinfo")

// rules decides which actions of one statement are allowed while SQLite prepares the statement. It also
// records which tables the statement reads.
type rules struct {
	known     map[string]bool // the file's tables and views, in lower case
	touched   map[string]bool // the tables that the statement reads
	functions int
	why       string // reason for the first refusal
}

// Authorize implements sqlite.Authorizer. SQLite calls it for each action that a statement would
// perform.
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
		return r.deny("only database main can be read, not " + db)
	}
	if slices.Contains(secretColumns[table], column) {
		return r.deny(table + "." + column + " cannot be read: select other columns by name")
	}
	switch {
	case r.known[table]:
		r.touched[table] = true
	case virtual[table], table == "sqlite_master", table == "sqlite_schema":
	case column == "": // count(*) of a common table expression; SQLite authorizes the reads of that expression separately
	default:
		return r.deny("table " + a.Table() + " cannot be read")
	}
	return sqlite.AuthResultOK
}

func wordSet(s string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		set[w] = true
	}
	return set
}
