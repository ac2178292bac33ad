package cgroup

import (
	"os"
	"runtime"
	"syscall"
)

// OnOwnThread calls fn on a new thread that runs nothing else and then ends. fn may therefore
// change the thread's own state in the kernel, such as its cgroups and namespaces. The thread is
// never the process's first one, which would not end.
func OnOwnThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			OnOwnThread(fn) // runs on another thread, because this goroutine has locked the first one
			return
		}
		fn()
	}()
	<-done
}
