package machines

import (
	"os"
	"runtime"
	"testing"
)

func TestCutOff(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("namespaces are Linux's")
	}
	if outsideNetwork(os.Getpid(), "/proc/self/ns/net") {
		t.Error("a process is cut off from its own network")
	}
	if !outsideNetwork(os.Getpid(), "/proc/self/ns/mnt") { // any namespace that is not the process's network namespace
		t.Error("a process in another namespace is not cut off")
	}
	if outsideNetwork(os.Getpid(), "/nonexistent") || outsideNetwork(1<<30, "/proc/self/ns/net") {
		t.Error("what cannot be known is told as cut off")
	}
}
