// Package documents runs what the documents say, line by line, on hosts that
// are namespaces: what a reader types is what is tested.
//
// A comment before a fenced block says where it belongs; readers do not see it:
//
//	<!-- run: broker-1 -->               each line is typed on this host; several hosts may be named
//	<!-- file: gru-1 /etc/bourse/x -->   the block is this file of these hosts
//	<!-- shows -->                       what the block before it must have printed; "…" stands for anything
package documents
