package store

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestRecover damages one machine's record. Recover must create a store with all other records,
// and with the records derived from them.
func TestRecover(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		update(t, s, func(tx *Tx) error {
			m := machine(n, bourse.StateCreated)
			if n == 7 {
				m.Config.Metadata = map[string]string{"mark": "of machine seven"}
			}
			if _, err := tx.Append(Entry{Kind: KindMachine, ID: string(m.ID), Event: bourse.Event{Type: "launch"}}); err != nil {
				return err
			}
			return tx.PutMachine(m)
		})
	}
	task := taskOrder(1, 3)
	update(t, s, func(tx *Tx) error { return tx.RecordTask(task) })
	update(t, s, func(tx *Tx) error {
		_, err := tx.RecordTaskEnd(task.ID, taskEnd(&task, []byte("42")), task.At)
		return err
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, FileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte("of machine seven"))] ^= 4
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); bourse.CodeOf(err) != bourse.CodeInternal || !strings.Contains(err.Error(), "worker store recover") {
		t.Errorf("open: %v, want an error that names the command", err)
	}
	if r, err := Check(dir); err != nil || r.Machines != 19 || len(r.Damage) == 0 {
		t.Errorf("check: %+v, %v", r, err)
	}
	if r, err := Recover(dir, time.Unix(0, 0)); err != nil || !slices.Equal(r.Lost, []string{"machines: 1 of 20"}) {
		t.Fatalf("recover: %+v, %v", r, err)
	}
	s = openIn(t, dir)
	view(t, s, func(tx *Tx) error {
		if n := tx.CountMachines(bourse.App{Name: "default"}); n != 19 {
			t.Errorf("%d machines, want 19", n)
		}
		if o, ok, err := tx.Order(task.ID); err != nil || !ok || string(o.Task.Result.Answer) != "42" {
			t.Errorf("task %+v, %t, %v", o, ok, err)
		}
		return tx.Verify()
	})
}
