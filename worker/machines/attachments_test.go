package machines

import (
	"os"
	"runtime"
	"testing"
)

func TestCutOff(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("namespaces exist only on Linux")
	}
	if outsideNetwork(os.Getpid(), "/proc/self/ns/net") {
		t.Error("a process is reported as outside its own network")
	}
	if !outsideNetwork(os.Getpid(), "/proc/self/ns/mnt") { // any namespace that is not the process's network namespace
		t.Error("a process in another namespace is not reported as outside")
	}
	if outsideNetwork(os.Getpid(), "/nonexistent") || outsideNetwork(1<<30, "/proc/self/ns/net") {
		t.Error("a process is reported as outside although this cannot be determined")
	}
}
