// Package companion starts and finds a companion: a small process that outlives the daemon that starts it. A file lock
// ensures that there is only one companion per directory. The companion runs in its own session, listens on a socket in
// the directory, and exchanges frames with the daemon.
//
// The companion first calls [CloseInherited] and [Readiness], then [Lock], then [Listen], and
// [CheckPeer] for every connection. The daemon calls [Dial]. If no companion answers, it calls
// [Spawn]. It calls [AwaitEnd] to wait until the companion has exited.
package companion
