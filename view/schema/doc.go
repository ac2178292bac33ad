// Package schema implements the view's SQLite file and its tables. It checks rows against
// schema.sql, reads them, and writes them. Only one process at a time uses the file. The process
// locks the file, writes through one connection ([File]), and reads through a pool of other
// connections ([Pool]).
package schema
