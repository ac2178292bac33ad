package cgroup

import (
	"os"
	"runtime"
	"syscall"
)

// OnOwnThread calls fn on a thread that runs nothing else before it ends, so
// that fn may change what the kernel keeps for each thread: its cgroups, its
// namespaces. It is never the first thread of the process, which would stay.
func OnOwnThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			OnOwnThread(fn) // gets another one while we keep this
			return
		}
		fn()
	}()
	<-done
}
