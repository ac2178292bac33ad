package query

import (
	"reflect"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"
)

// This file uses reflection to read unexported fields of the SQLite binding. If a new version of
// the binding renames these fields, this package's tests fail.

// tlsOf returns the thread-local storage that the translated C code uses for a connection. SQLite
// passes it to the allocator, which has no other way to identify the connection.
func tlsOf(conn *sqlite.Conn) unsafe.Pointer {
	return reflect.ValueOf(conn).Elem().FieldByName("tls").UnsafePointer()
}

// functionOf returns the name of the function that an action of type OpFunction would call.
func functionOf(a sqlite.Action) string { return reflect.ValueOf(a).FieldByName("arg2").String() }

// columnNames returns the names of a statement's columns. It does not use Stmt.ColumnName, because
// that method does not support several columns with the same name.
func columnNames(conn *sqlite.Conn, stmt *sqlite.Stmt) []string {
	tls := (*libc.TLS)(tlsOf(conn))
	handle := uintptr(reflect.ValueOf(stmt).Elem().FieldByName("stmt").Uint())
	names := make([]string, stmt.ColumnCount())
	for i := range names {
		names[i] = libc.GoString(lib.Xsqlite3_column_name(tls, handle, int32(i)))
	}
	return names
}
