// Package schema implements the view's SQLite file and its tables: schema.sql, which
// rows fit it, and reading and writing them. The file belongs to one process, which
// locks it, writes it through one connection, and reads it through a pool of others
// ([File]).
package schema
