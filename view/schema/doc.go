// Package schema implements the view's SQLite file and its tables. It checks rows against
// schema.sql, reads them, and writes them. The file belongs to one process, which locks it, writes
// it through one connection, and reads it through a pool of other connections ([File]).
package schema
