package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// envChild makes the test binary run as a child process. Its value is the task, a space and the
// store's directory.
const envChild = "BOURSE_STORE_CHILD"

// child performs the task in envChild, and reports whether there was one.
func child() bool {
	what, dir, ok := strings.Cut(os.Getenv(envChild), " ")
	if !ok {
		return false
	}
	s, err := openConfig(Config{Dir: dir})
	if err == nil {
		switch what {
		case "write":
			err = childWrites(s)
		case "limit":
			err = childFills(s)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// childWrites writes machines and log entries endlessly, from eight goroutines. It prints the
// number of each acknowledged machine to stdout.
func childWrites(s *DB) error {
	first, err := strconv.Atoi(os.Getenv("BOURSE_STORE_FIRST"))
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := first + g; ; n += 8 {
				if err := s.Update(context.Background(), putMachine(n)); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				if _, err := os.Stdout.Write(binary.BigEndian.AppendUint32(nil, uint32(n))); err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// TestKill repeatedly kills a process that writes to a store. Everything that the process has
// reported as durable must be in the store.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[int]bool{}
	for round := range 8 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envChild+"=write "+dir, fmt.Sprintf("BOURSE_STORE_FIRST=%d", round*1_000_000))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var b [4]byte
		for range 20 + rand.IntN(400) { // until a random time
			if _, err := io.ReadFull(out, b[:]); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			acknowledged[int(binary.BigEndian.Uint32(b[:]))] = true
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for { // reports that were still in the pipe
			if _, err := io.ReadFull(out, b[:]); err != nil {
				break
			}
			acknowledged[int(binary.BigEndian.Uint32(b[:]))] = true
		}
		_ = cmd.Wait() // always fails, because the process was killed
		checkKilled(t, dir, acknowledged)
	}
}

func checkKilled(t *testing.T, dir string, acknowledged map[int]bool) {
	t.Helper()
	s, err := openConfig(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	view(t, s, func(tx Tx) error {
		for n := range acknowledged {
			if err := machineOf(tx, machineID(n)); err != nil {
				t.Errorf("machine %d was acknowledged: %v", n, err)
			}
			if k := first(tx.Range(bucketLogOf, []byte(machineID(n)))); !strings.HasPrefix(k, machineID(n)) {
				t.Errorf("machine %d has no line in the log", n)
			}
		}
		return verify(tx)
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// first returns the first key of a sequence.
func first(all iter.Seq2[[]byte, []byte]) string {
	for k := range all {
		return string(k)
	}
	return ""
}

// errNotFull means that childFills could not fill the disk.
var errNotFull = errors.New("no write was refused")

// childFills writes until it reaches a limit on the size of files. It then removes the limit and
// continues to write.
func childFills(s *DB) error {
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 20 << 20, Max: old.Max}); err != nil {
		return err
	}
	return fillAndContinue(s, func() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old) })
}

// fillAndContinue fills the disk of s, checks the contents, calls checkSpace to free space, and checks that the store
// then accepts writes again.
func fillAndContinue(s *DB, makeRoom func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	kept := 0
	put := func() error {
		return s.Update(ctx, putLarge(kept, 256<<10))
	}
	for ; ; kept++ {
		err := put()
		if err == nil && kept < 2000 {
			continue
		}
		if err == nil {
			return errNotFull
		}
		if bourse.CodeOf(err) != bourse.CodeUnavailable {
			return fmt.Errorf("full: %w", err)
		}
		break
	}
	if kept == 0 {
		return errors.New("the disk was full before the first write")
	}
	for range 3 { // the disk remains full
		if code := bourse.CodeOf(put()); code != bourse.CodeUnavailable {
			return fmt.Errorf("still full: got code %q, want unavailable", code)
		}
	}
	if err := checkCount(s, kept); err != nil {
		return fmt.Errorf("check the contents on the full disk: %w", err)
	}
	if err := makeRoom(); err != nil {
		return err
	}
	for range 10 {
		if err := put(); err != nil {
			return fmt.Errorf("write after space was freed: %w", err)
		}
		kept++
	}
	return errors.Join(checkCount(s, kept), s.Close())
}

func checkCount(s *DB, want int) error {
	return s.View(func(t Tx) error {
		if got := countMachines(t); got != want {
			return fmt.Errorf("%d machines, want %d", got, want)
		}
		return verify(t)
	})
}

func TestFullDisk(t *testing.T) {
	t.Run("limit", func(t *testing.T) {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envChild+"=limit "+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		s, err := openConfig(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		view(t, s, verify)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("tmpfs", func(t *testing.T) {
		dir := mountSmall(t)
		ballast := dir + "/ballast"
		if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openConfig(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := fillAndContinue(s, func() error { return os.Remove(ballast) }); err != nil {
			t.Error(err)
		}
	})
}
