// Package schema implements the view's SQLite file and its tables: schema.sql, checking rows against it, and reading
// and writing them. The file belongs to one process, which locks it, writes it through one connection, and reads it
// through a pool of other connections ([File]).
package schema
