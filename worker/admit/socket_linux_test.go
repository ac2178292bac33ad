package admit

import (
	"syscall"
	"testing"
	"time"
)

// bind does not block while another goroutine forks.
func TestBindDoesNotWaitForAFork(t *testing.T) {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); _ = bind(0) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("bind waits for a fork")
	}
}
