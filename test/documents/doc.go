// Package documents runs the commands in the documentation, line by line. Each host in the
// documentation is a set of namespaces on this host.
//
// An HTML comment before a fenced block, which readers do not see, tells the tests what to do with
// the block:
//
//	<!-- run: broker-1 -->               type each line on this host; several hosts may be named
//	<!-- file: gru-1 /etc/bourse/x -->   write the block to this file on these hosts
//	<!-- shows -->                       the previous block must have printed this; "…" stands for anything
package documents
