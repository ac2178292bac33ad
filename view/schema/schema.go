package schema

import (
	_ "embed" // for the schema
	"regexp"
	"strings"

	"github.com/bourse-dev/bourse/view/sqlfile"
)

// SQL is the newest schema as one text.
//
//go:embed schema.sql
var SQL string

// Current is the schema of the view's file, and how files of earlier ones
// come to it. A step stays as it is once it was released. Files of a schema
// before the first one were of no release, and are replaced.
func Current() sqlfile.Schema {
	return sqlfile.Schema{First: 4, Steps: []string{
		SQL, people(SQL), create(SQL, "forgotten_rows") + people(SQL), releases(SQL) + people(SQL), people(SQL), create(SQL, "token_rows") + people(SQL),
		rebuild(SQL, "worker_rows", "site, key, epoch, seq, at, hash, extra, region, tag, version, labels, capacity, free, load, drivers, leaving") + people(SQL),
	}}
}

// create returns the statement that makes a table which a later release has added.
func create(schema, table string) string {
	_, body, _ := strings.Cut(schema, "CREATE TABLE "+table)
	body, _, _ = strings.Cut(body, "\n) WITHOUT ROWID;") // a comment may have another ";"
	return "CREATE TABLE IF NOT EXISTS " + table + body + "\n) WITHOUT ROWID;\n"
}

// releases returns the statements that give the table of releases its columns of
// now.
func releases(schema string) string {
	return rebuild(schema, "release_rows", "key, site, epoch, seq, at, clock, hash, extra, app, version, status, image, definition, created_by, created_at")
}

// rebuild returns the statements that give a table its columns of now. Rows keep what
// they have in the columns that are common to it and to the table before.
func rebuild(schema, table, common string) string {
	_, body, _ := strings.Cut(schema, "CREATE TABLE "+table)
	body, rest, _ := strings.Cut(body, "\n) WITHOUT ROWID;") // a comment may have another ";"
	indexes, _, _ := strings.Cut(rest, "\n\n")
	return dropPeople(schema) + "CREATE TEMP TABLE old AS SELECT " + common + " FROM " + table + ";\nDROP TABLE " + table + ";\nCREATE TABLE " + table + body +
		"\n) WITHOUT ROWID;" + indexes + "\nINSERT INTO " + table + " (" + common + ") SELECT " + common + " FROM temp.old;\nDROP TABLE temp.old;\n"
}

var viewName = regexp.MustCompile(`(?m)^CREATE VIEW (\w+) `)

// people returns the statements that make what people ask, the SQL views, from
// scratch: they have no rows of their own.
func people(schema string) string {
	return dropPeople(schema) + schema[viewName.FindStringIndex(schema)[0]:]
}

func dropPeople(schema string) string {
	var b strings.Builder
	for _, m := range viewName.FindAllStringSubmatch(schema, -1) {
		b.WriteString("DROP VIEW IF EXISTS " + m[1] + ";\n")
	}
	return b.String()
}
