package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// bind attaches a loop device to a new file.
func bind(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Skipf("this host has no loop devices for the test: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func release(t *testing.T, device string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "losetup", "--detach", device).CombinedOutput(); err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
}

// TestHoldDevices tries to reassign a device's number to another file, before and after the agent has
// opened the device.
func TestHoldDevices(t *testing.T) {
	device := bind(t)
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	n, err := session.Sequence(f)
	if err != nil {
		t.Skip(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	list := []session.Device{{Path: device, Sequence: n}}
	held, err := holdDevices(list)
	if err != nil || len(held) != 1 {
		t.Fatalf("%v, %v", held, err)
	}
	release(t, device)
	if other := bind(t); other == device {
		t.Errorf("%s was assigned to another file while the agent held it open", device)
	} else {
		release(t, other)
	}
	if err := held[0].Close(); err != nil {
		t.Fatal(err)
	}
	if held, err := holdDevices(list); err == nil {
		t.Errorf("a device without a file was accepted: %v", held)
	}
	list[0].Path = bind(t) // often the same number; in any case, the sequence number differs
	defer release(t, list[0].Path)
	if held, err := holdDevices(list); err == nil || !strings.Contains(err.Error(), "another device") {
		t.Errorf("another file's device was accepted: %v, %v", held, err)
	}
}
