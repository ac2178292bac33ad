package view

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestAWorkersViewOpensOnAFullDisk checks that a worker whose disk is full starts with a view in
// memory, with the same key, and uses the file again after a restart with free space. A broker
// does not start, because its view may contain the only copy of an app.
func TestAWorkersViewOpensOnAFullDisk(t *testing.T) {
	dir := mountSmall(t)
	cfg := Config{Path: dir + "/view.db", Role: bourse.RoleWorker}
	m := startMember(t, cfg)
	m.publish(volume("v", "x"))
	birth, _ := m.verifier.Keys.Own()
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	ballast, err := os.Create(dir + "/ballast")
	if err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1<<10); err == nil; {
		_, err = ballast.Write(b)
	}
	if _ = ballast.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	broker := cfg
	broker.Role = bourse.RoleBroker
	if _, err := Open(withTestDefaults(broker)); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("a broker's view: %v, want unavailable", err)
	}
	m = startMember(t, cfg)
	if now, _ := m.verifier.Keys.Own(); m.Path() != "" || !bytes.Equal(now, birth) {
		t.Errorf("the view is in %q, with key %v; want it in memory, with key %v", m.Path(), now, birth)
	}
	m.publish(volume("v", "x"))
	if _, err := Open(withTestDefaults(cfg)); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("a second view with the same path: %v, want already_exists", err)
	}
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(ballast.Name()); err != nil {
		t.Fatal(err)
	}
	m = startMember(t, cfg)
	if m.Path() != cfg.Path {
		t.Errorf("after space was freed, the view is in %q", m.Path())
	}
	m.publish(volume("v", "x"))
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
}
