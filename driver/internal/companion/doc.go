// Package companion starts and finds a companion: a small process that outlives the daemon that
// starts it. There is one companion per directory, which a file lock ensures. It runs in a
// session of its own and listens on a socket in the directory, and it and the daemon exchange
// frames.
//
// The companion first calls [CloseInherited] and [Readiness], then [Lock], then [Listen], and
// [CheckPeer] for every connection. The daemon calls [Dial], [Spawn] if no companion answers, and
// [AwaitEnd] to wait for the companion's end.
package companion
