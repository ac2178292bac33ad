package view

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// ballast returns a large row, for filling the disk.
func ballast(n int) wire.Row {
	row := volume(fmt.Sprint("ballast", n), "x")
	row.Columns["name"] = strings.Repeat("x", 256<<10)
	return row
}

// fillAndRecover fills the disk of v and checks that writes fail and everything else works. It then frees space and
// checks that writes work again.
func fillAndRecover(ctx context.Context, v *View, makeRoom func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	kept := 0
	for ; ; kept++ {
		_, err := v.Publish(ctx, ballast(kept))
		if err == nil && kept < 1000 {
			continue
		}
		if bourse.CodeOf(err) != bourse.CodeUnavailable {
			return fmt.Errorf("after %d rows: got %w, want %s", kept, err, bourse.CodeUnavailable)
		}
		break
	}
	if kept == 0 {
		return errors.New("not even one row could be written")
	}
	theirs := &wire.Transaction{Position: wire.Position{Stream: wire.Stream{Site: "w2", Epoch: 1}, Seq: 1}, Rows: []wire.Row{ballast(-1)}}
	b, err := wire.Encode(theirs, testSeal())
	if err != nil {
		return err
	}
	if verdict, err := v.Apply(b); err != nil || verdict.Outcome != Queued {
		return fmt.Errorf("apply on the full disk: %v, %w", verdict, err)
	}
	for range 3 { // the disk remains full
		if _, err := v.Publish(ctx, ballast(kept)); bourse.CodeOf(err) != bourse.CodeUnavailable {
			return fmt.Errorf("still full: %w", err)
		}
	}
	if v.Health().Error == "" {
		return errors.New("Health does not report the full disk")
	}
	if n, err := count(ctx, v); err != nil || n != kept {
		return fmt.Errorf("read on the full disk: %d rows, want %d, %w", n, kept, err)
	}
	if err := makeRoom(); err != nil {
		return err
	}
	// Flush waits until the other site's transaction, which is queued, has been written.
	if err := v.Flush(ctx); err != nil {
		return err
	}
	if _, err := v.Publish(ctx, ballast(kept)); err != nil {
		return fmt.Errorf("write after space was freed: %w", err)
	}
	if n, err := count(ctx, v); err != nil || n != kept+2 || v.Generation() != 1 || v.Health().Error != "" {
		return fmt.Errorf("after space was freed: %d rows, want %d, health %q, %w", n, kept+2, v.Health().Error, err)
	}
	return v.verify(ctx)
}

func count(ctx context.Context, v *View) (n int, err error) {
	err = v.Read(ctx, func(c *sqlite.Conn) error {
		return schema.Query(c, "SELECT count(*) FROM volume_rows", func(s *sqlite.Stmt) error {
			n = s.ColumnInt(0)
			return nil
		})
	})
	return n, err
}

func TestFullDisk(t *testing.T) {
	t.Run("limit", func(t *testing.T) { // limits the size of files in a child process
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envChild+"=limit "+tempFile(t))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	t.Run("tmpfs", func(t *testing.T) {
		dir := mountSmall(t)
		filler := dir + "/filler"
		write(t, filler, make([]byte, 8<<20))
		m := startMember(t, Config{Path: dir + "/view.db"})
		if err := fillAndRecover(t.Context(), m.View, func() error { return os.Remove(filler) }); err != nil {
			t.Error(err)
		}
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDiskIsTemporarilyFull simulates a disk that SQLite temporarily reports as full.
func TestDiskIsTemporarilyFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuse atomic.Bool
		refuse.Store(true)
		m := startMember(t, Config{Fault: func(stage FaultStage, _ uint64) error {
			if refuse.Load() && stage == FaultBefore {
				return sqlite.ResultFull.ToError()
			}
			return nil
		}})
		if _, err := m.Publish(t.Context(), volume("v", "x")); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Fatalf("publish: got %v, want unavailable", err)
		}
		if _, err := m.Apply(encoded(t, "w2", 1, 1, volume("theirs", "x"))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * retryAfter)
		synctest.Wait()
		if m.Head(wire.Stream{Site: "w2", Epoch: 1}) != 0 || m.Health().Error == "" {
			t.Errorf("while the disk is full: head %d, health %q", m.Head(wire.Stream{Site: "w2", Epoch: 1}), m.Health().Error)
		}
		refuse.Store(false)
		time.Sleep(retryAfter)
		synctest.Wait()
		if m.Head(wire.Stream{Site: "w2", Epoch: 1}) != 1 || m.Health().Error != "" {
			t.Errorf("a second after there is space again: head %d, health %q", m.Head(wire.Stream{Site: "w2", Epoch: 1}), m.Health().Error)
		}
		m.publish(volume("v", "x"))
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	})
}
