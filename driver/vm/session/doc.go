// Package session runs programs in a virtual machine over streams between the host and the guest.
//
// A session consists of one program and its streams. The host opens all streams. The first message on each
// stream is an [Open], which says to which session the stream belongs and what it carries. The first stream
// of a session is its control stream. It carries a [Program], and then messages in both directions: [Order]s
// from the host, [Report]s from the guest. The other streams carry the bytes of stdin, stdout and stderr.
// If the control stream ends, the guest kills the program.
//
// A message is its length in four bytes, followed by JSON.
package session
