package cgroup

import (
	"os"
	"runtime"
	"syscall"
)

// OnOwnThread calls fn on a dedicated thread, which does not run any other goroutine and exits
// afterwards. fn may therefore change the thread's own state in the kernel, such as its cgroups and
// namespaces. The dedicated thread is never the process's first thread, because that thread would
// not exit.
func OnOwnThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so that the thread exits together with the goroutine
		if syscall.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			OnOwnThread(fn) // runs on another thread, because this goroutine has locked the first one
			return
		}
		fn()
	}()
	<-done
}
