package query

import (
	"reflect"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"
)

// What the binding keeps to itself, and is needed here, is read by reflection.
// A binding that names it otherwise fails in the first test.

// tlsOf returns the C thread that stands for a connection. It is what SQLite's
// allocator is called with, and the only thing that tells whose memory it
// gives.
func tlsOf(conn *sqlite.Conn) unsafe.Pointer {
	return reflect.ValueOf(conn).Elem().FieldByName("tls").UnsafePointer()
}

// functionOf returns the name of the function that a statement would call.
func functionOf(a sqlite.Action) string { return reflect.ValueOf(a).FieldByName("arg2").String() }

// columnNames returns the names of a statement's columns. Stmt.ColumnName has
// none for all but the last of equal ones.
func columnNames(conn *sqlite.Conn, stmt *sqlite.Stmt) []string {
	tls := (*libc.TLS)(tlsOf(conn))
	handle := uintptr(reflect.ValueOf(stmt).Elem().FieldByName("stmt").Uint())
	names := make([]string, stmt.ColumnCount())
	for i := range names {
		names[i] = libc.GoString(lib.Xsqlite3_column_name(tls, handle, int32(i)))
	}
	return names
}
