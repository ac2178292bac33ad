package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// TestRestoreDoesNotRestoreMachines checks what a worker's backup does not do. After the backup, one machine is
// destroyed and another one is created. Then the worker's host is lost and restored. Neither machine may run, both must
// disappear from the broker's lists, and the order of the lost machine, when it is repeated, is filled exactly once.
func TestRestoreDoesNotRestoreMachines(t *testing.T) {
	lan := newLAN(t)
	first, second := lan.bare("h1"), lan.bare("h2")
	out := first.start("bourse worker list", first.setup("init", "--region", "gru")...)
	joined := second.start("is part of cluster", second.setup("join", joinLine.FindString(out.printed()))...)
	joined.stop()
	config, err := os.ReadFile(second.file("etc", "bourse.toml"))
	if err != nil {
		t.Fatal(err)
	}
	config = append(config, "allow-host = true\nephemeral = true\nno-limits = true\n"...)
	if err := os.WriteFile(second.file("etc", "bourse.toml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	serving := second.start(`"role":"worker"`, "serve", "--config", second.file("etc", "bourse.toml"))
	if _, err := first.run("app", "create", "web"); err != nil {
		t.Fatal(err)
	}
	order := bourse.NewOrderID()
	place := func(name string, more ...string) error {
		args := append([]string{"machine", "run", "host", "--app", "web", "--region", "gru", "--name", name}, more...)
		_, err := first.run(append(args, "--", "sleep", "1000")...)
		return err
	}
	eventually(t, waitTimeout, "a machine runs", func() error { return place("old") })

	backup := second.file("h2.tar")
	if _, err := second.run("backup", backup, "--config", second.file("etc", "bourse.toml")); err != nil {
		t.Fatal(err)
	}
	if _, err := first.run("machine", "destroy", "--app", "web", "--force", "--yes", "old"); err != nil {
		t.Fatal(err)
	}
	if err := place("new", "--order-id", string(order)); err != nil {
		t.Fatal(err)
	}
	before, err := first.machines("web")
	if err != nil || len(before) != 1 || before[0].Name != "new" {
		t.Fatalf("machines %v, %v; want only the new one", before, err)
	}

	// The host is lost with everything on it, and another one takes its place.
	serving.stop()
	for _, dir := range []string{"etc", "data"} {
		if err := os.RemoveAll(second.file(dir)); err != nil {
			t.Fatal(err)
		}
	}
	restore := []string{"restore", backup, "--config", second.file("etc", "bourse.toml"), "--foreground"}
	if _, err := second.run(append(restore, "--name", "h3")...); err == nil || !strings.Contains(err.Error(), "backup of host h2") {
		t.Errorf("restore on a host with another name: %v, want \"backup of host h2\"", err)
	}
	second.start("is part of cluster", append(restore, "--name", "h2")...)
	if _, err := second.run(append(restore, "--name", "h2")...); err == nil || !strings.Contains(err.Error(), "already has a configuration") {
		t.Errorf("restore on a host that is already a member: %v, want \"already has a configuration\"", err)
	}
	eventually(t, waitTimeout, "the broker no longer lists the lost machines", func() error {
		list, err := first.machines("web")
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("the broker still lists %v", list)
		}
		return err
	})
	for range 2 { // the client repeats the order
		eventually(t, waitTimeout, "the order is filled", func() error { return place("new", "--order-id", string(order)) })
	}
	after, err := first.machines("web")
	if err != nil || len(after) != 1 || after[0].Name != "new" || after[0].ID == before[0].ID || after[0].State != bourse.StateStarted {
		t.Errorf("machines %v, %v; want a new one in place of %v", after, err, before)
	}
}

// listedMachine is a machine in the output of "machine list".
type listedMachine struct {
	ID    bourse.MachineID
	Name  string
	State bourse.State
}

// machines returns the machines of an app.
func (h *bareHost) machines(app string) ([]listedMachine, error) {
	out, err := h.run("machine", "list", "--app", app, "--json")
	var list []listedMachine
	if err == nil {
		err = json.Unmarshal([]byte(out), &list)
	}
	return list, err
}

// TestBackupOnAFullDisk checks that a backup that does not fit on its disk leaves no file.
func TestBackupOnAFullDisk(t *testing.T) {
	lan := newLAN(t)
	h := lan.bare("h1")
	h.start("bourse worker list", h.setup("init", "--role", "broker,worker")...)
	small := h.file("small")
	err := errors.Join(os.Mkdir(small, 0o700), h.do(func() error { return unix.Unshare(unix.CLONE_NEWNS) }), h.mountSmall(small, 64<<10))
	if err != nil {
		t.Fatal(err)
	}
	backup := []string{"backup", h.file("small", "h1.tar"), "--config", h.file("etc", "bourse.toml")}
	if _, err := h.run(backup...); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("backup to a full disk: %v, want exit status 7", err)
	}
	err = h.do(func() error {
		left, err := os.ReadDir(small)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the files %v remain, want none", left)
		}
		return err
	})
	if err != nil {
		t.Errorf("files after the failed backup: %v", err)
	}
	if _, err := h.run("backup", h.file("h1.tar"), "--config", h.file("etc", "bourse.toml")); err != nil {
		t.Errorf("backup to another disk: %v", err)
	}
}
