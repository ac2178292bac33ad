// Package sqlfile is a SQLite file that one process owns: locked, migrated, put
// aside when it is of no use, written by one connection and read by a pool of
// others, each on one state of the file. It knows nothing of what is in it.
package sqlfile
