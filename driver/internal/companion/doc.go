// Package companion is what a daemon and a small process beside it have in
// common when that process is to outlive it: one of them per directory (a file
// lock), found through a socket in the directory or started in a session of
// its own, and frames to speak with it.
//
// The process's side: [CloseInherited] and [Readiness] first, then [Lock],
// then [Listen] and [CheckPeer] of every connection. The daemon's side:
// [Dial], [Spawn] when no one answers, [LockFree] to wait for an end.
package companion
