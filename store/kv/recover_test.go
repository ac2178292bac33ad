package kv

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// damageValue flips a bit of a key's value in an encoded snapshot, and reports whether the key
// exists.
func damageValue(b []byte, bucket, key string) bool {
	value := readSnapshot(b, schema()).get(bucket, key)
	if value == nil {
		return false
	}
	b[bytes.Index(b, value)+len(value)/2] ^= 4
	return true
}

func (c contents) get(bucket, key string) []byte {
	return (&stateTx{state: c.state}).Get(bucket, []byte(key))
}

// TestRecover damages one machine's record. The store must not open, Check must name the record
// and change nothing, and Recover must create a store with all other records and retain the
// damaged file.
func TestRecover(t *testing.T) {
	dir, path := written(t) // creates 200 machines
	if r, err := Check(dir, schema()); err != nil || len(r.Damage) > 0 || r.Intact[bucketMachines] != 200 {
		t.Fatalf("check of an intact store: %+v, %v", r, err)
	}
	if _, err := Recover(dir, schema(), time.Unix(0, 0), derive); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("recovery of an intact store: %v, want an error", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !damageValue(b, bucketMachines, string(machineID(77))) {
		t.Fatal("machine 77 does not exist")
	}
	overwrite(t, path, b)
	if _, err := openConfig(Config{Dir: dir}); bourse.CodeOf(err) != bourse.CodeInternal || !strings.Contains(err.Error(), "worker store recover") {
		t.Errorf("open: %v, want an error that names the command", err)
	}
	r, err := Check(dir, schema())
	if err != nil || len(r.Damage) == 0 || !strings.Contains(r.Damage[0], string(machineID(77))) {
		t.Fatalf("check: %+v, %v, want the damaged record", r, err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, b) {
		t.Errorf("check changed the file: %v", err)
	}
	r, err = Recover(dir, schema(), time.Unix(0, 0), derive)
	if err != nil || len(r.Lost) != 1 || r.Lost[0] != "machines: 1 of 200" {
		t.Fatalf("recover: %+v, %v", r, err)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, r.Saved[0])); err != nil || !bytes.Equal(kept, b) {
		t.Errorf("the damaged file was not retained: %v", err)
	}
	for range 2 {
		s, err := openConfig(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		view(t, s, func(tx Tx) error {
			if err := machineOf(tx, machineID(77)); bourse.CodeOf(err) != bourse.CodeNotFound {
				t.Errorf("machine 77: %v, want none", err)
			}
			if n := countMachines(tx); n != 199 {
				t.Errorf("%d machines, want 199", n)
			}
			return verify(tx)
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecoverWithoutBeginningOrEnd checks that if the beginning or the end of the file is
// damaged, all records are recovered.
func TestRecoverWithoutBeginningOrEnd(t *testing.T) {
	for name, at := range map[string]func(size int) int{"beginning": func(int) int { return 3 }, "end": func(size int) int { return size - 3 }} {
		t.Run(name, func(t *testing.T) {
			dir, path := written(t)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[at(len(b))] ^= 1
			overwrite(t, path, b)
			if _, err := openConfig(Config{Dir: dir}); bourse.CodeOf(err) != bourse.CodeInternal {
				t.Fatalf("open: %v, want an error", err)
			}
			r, err := Recover(dir, schema(), time.Unix(0, 0), derive)
			if err != nil || len(r.Lost) != 0 {
				t.Fatalf("recover: %+v, %v; want no lost records", r, err)
			}
			reopened(t, dir, 200)
		})
	}
}

// TestRecoverRefusesARunningDaemon checks that Check and Recover refuse to run while a daemon has the store open.
func TestRecoverRefusesARunningDaemon(t *testing.T) {
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(dir, schema()); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("check: got %v, want already_exists", err)
	}
	if _, err := Recover(dir, schema(), time.Unix(0, 0), derive); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("recover: got %v, want already_exists", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// gapped creates a store with 12 machines, and damages the log record of machine 5. It returns the
// store's directory and the contents of the damaged log.
func gapped(t *testing.T) (dir string, log []byte) {
	t.Helper()
	open := t.TempDir()
	s, err := openConfig(Config{Dir: open, LogFileSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 12 {
		update(t, s, putMachine(n))
	}
	dir = copyDir(t, open)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, walNames[0])
	log, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(log, machine(5, 0))
	if at < 0 {
		t.Fatal("the log does not contain the record")
	}
	log[at+2] ^= 1
	overwrite(t, path, log)
	return dir, log
}

// without5 checks that the recovered store contains all machines that gapped has created except
// machine 5, and writes to the store.
func without5(t *testing.T, dir string) {
	t.Helper()
	s, err := openConfig(Config{Dir: dir, LogFileSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	view(t, s, func(tx Tx) error {
		for n := range 12 {
			if err := machineOf(tx, machineID(n)); (n == 5) != (bourse.CodeOf(err) == bourse.CodeNotFound) || n != 5 && err != nil {
				t.Errorf("machine %d: %v", n, err)
			}
		}
		return verify(tx)
	})
	update(t, s, putMachine(20))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRecoverLogWithAGap checks that Check reports a damaged record in the middle of the log, and that Recover retains
// the records before and after it.
func TestRecoverLogWithAGap(t *testing.T) {
	dir, _ := gapped(t)
	if r, err := Check(dir, schema()); err != nil || len(r.Damage) != 1 || !strings.Contains(r.Damage[0], walNames[0]) || r.Records != 11 {
		t.Fatalf("check: %+v, %v, want one gap and 11 records", r, err)
	}
	if _, err := Recover(dir, schema(), time.Unix(0, 0), derive); err != nil {
		t.Fatal(err)
	}
	without5(t, dir)
}

// TestCrashDuringRecovery simulates a crash after each of Recover's changes of the directory. After
// the crash, the directory must contain either the damaged store, which can be recovered again, or
// the new one. The retained copy of the damaged log must not change, even when the new store is
// written.
func TestCrashDuringRecovery(t *testing.T) {
	for steps, over := 1, false; !over; steps++ {
		dir, log := gapped(t)
		left := steps
		_, err := recoverStore(dir, schema(), time.Unix(0, 0), derive, func() error {
			if left--; left == 0 {
				return errKill
			}
			return nil
		})
		if over = err == nil; !over && !errors.Is(err, errKill) {
			t.Fatal(err)
		}
		again := false
		if r, err := Check(dir, schema()); err != nil {
			t.Fatal(err)
		} else if again = len(r.Damage) > 0; again {
			if _, err := Recover(dir, schema(), time.Unix(60, 0), derive); err != nil {
				t.Fatalf("after %d steps: recover again: %v", steps, err)
			}
		}
		without5(t, dir)
		kept, err := filepath.Glob(filepath.Join(dir, walNames[0]+".damaged-*"))
		if err != nil || len(kept) == 0 {
			t.Fatalf("after %d steps: the damaged log was not retained: %v", steps, err)
		}
		for _, path := range kept {
			if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, log) {
				t.Errorf("after %d steps (recovered again: %v): the retained copy %s has changed (%v)", steps, again, filepath.Base(path), err)
			}
		}
		if over && steps < 6 {
			t.Errorf("recovery had only %d steps", steps)
		}
	}
}
