// Package session runs programs in a virtual machine over streams between the host and the guest.
//
// A session consists of one program and its streams. The host opens all streams. The first message on each stream is an
// [Open], which specifies the session and the kind of the stream. The first stream of a session is its control stream.
// It carries a [Program], followed by [Order]s from the host and [Report]s from the guest. The other streams carry
// stdin, stdout and stderr. If the control stream is closed, the guest kills the program.
//
// A message consists of its length as a 32-bit big-endian number, followed by JSON of that length.
package session
