package view

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// storyTime is recent, so that tombstones have not expired.
var storyTime = time.Now()

// someStory returns another site's transactions, which together cause all kinds of commits.
func someStory(t testing.TB) (log [][]byte) {
	at := wire.ClockAt(storyTime)
	for seq := range uint64(6) {
		log = append(log, encoded(t, "w2", 5, seq+1,
			volume(fmt.Sprint("v", seq%3), fmt.Sprint("app", seq)), secret("shop/a", fmt.Sprint(seq), at+wire.Clock(seq)),
			wire.Row{Table: "future", Key: "f", Columns: map[string]wire.Value{"n": int64(seq)}}))
	}
	log = append(log,
		encoded(t, "w2", 5, 7, wire.Row{Table: wire.TableVolumes, Key: "v1", Deleted: true}, wire.Row{Table: wire.TableSecrets, Key: "shop/a", Deleted: true, Clock: at + 9}),
		encoded(t, "w2", 6, 1, volume("v9", "new life")),
	)
	return log
}

// play applies a story's transactions, each in its own commit, and publishes rows of the member
// in between. It stops when the member is killed.
func play(m *member, log [][]byte) {
	for i, tx := range log {
		if _, err := m.Apply(tx); err != nil {
			return
		}
		if err := m.Flush(m.t.Context()); err != nil {
			return
		}
		if _, err := m.Publish(m.t.Context(), volume("mine", fmt.Sprint(i))); err != nil {
			return
		}
		if i == 3 {
			if err := m.Renew(m.t.Context(), m.Self().Stream); err != nil {
				return
			}
		}
	}
}

// copyFile copies the file and its write-ahead log as a kill would leave them.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	for _, end := range []string{"", "-wal"} {
		b, err := os.ReadFile(from + end)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+end, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKillAtEveryCommit kills a member before and after each commit of a story. Its file must be intact, and it must
// catch up with a member that was not killed.
func TestKillAtEveryCommit(t *testing.T) {
	log := someStory(t)
	var commits uint64
	whole := startMember(t, Config{Path: tempFile(t), Fault: func(_ FaultStage, n uint64) error { commits = n; return nil }})
	play(whole, log)
	want := whole.dump()
	if err := whole.stop(); err != nil {
		t.Fatal(err)
	}
	if commits < 16 {
		t.Fatalf("the story has only %d commits", commits)
	}
	for _, stage := range []FaultStage{FaultBefore, FaultAfter} {
		for n := range commits {
			if raceEnabled && (n+uint64(stage))%4 != 0 {
				continue
			}
			t.Run(fmt.Sprintf("stage %d of commit %d", stage, n+1), func(t *testing.T) {
				killAt(t, stage, n+1, log, want)
			})
		}
	}
}

func killAt(t *testing.T, stage FaultStage, n uint64, log [][]byte, want []string) {
	path := tempFile(t)
	left := filepath.Join(t.TempDir(), "left.db")
	var reached atomic.Uint64
	m := startMember(t, Config{Path: path, Fault: func(at FaultStage, c uint64) error {
		reached.Store(c)
		if at == stage && c == n {
			copyFile(t, path, left)
			return errors.New("killed")
		}
		return nil
	}})
	play(m, log)
	err := m.stop()
	if err == nil && reached.Load() < n {
		t.Log("this time the story had one commit less, because our own first presence was written together with another change")
		return
	}
	if !errors.Is(err, errKilled) {
		t.Fatalf("Run ended with %v", err)
	}
	again := startMember(t, Config{Path: left})
	if again.Generation() != 1 || fileExists(left+schema.DamagedSuffix) {
		t.Error("the file was replaced")
	}
	again.sound()
	// In practice, other members would return this member's transactions that they have received. Here, the member
	// publishes its row again.
	again.take(log...)
	again.publish(volume("mine", fmt.Sprint(len(log)-1)))
	again.sound()
	if d := cmp.Diff(want, again.dump()); d != "" {
		t.Errorf("after it caught up (-want +got):\n%s", d)
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestCallersGetAnErrorWhenTheWriterIsKilled(t *testing.T) {
	m := startMember(t, Config{Fault: func(FaultStage, uint64) error { return errors.New("killed") }})
	if _, err := m.Publish(t.Context(), volume("v", "x")); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("publish: %v, want %s", err, bourse.CodeUnavailable)
	}
	<-m.View.stopped
	if _, err := m.Publish(t.Context(), volume("v", "x")); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("publish after Run has ended: %v, want %s", err, bourse.CodeUnavailable)
	}
	if err := m.Flush(t.Context()); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("flush after Run has ended: %v, want %s", err, bourse.CodeUnavailable)
	}
	if _, err := m.Apply(encoded(t, "w2", 1, 1)); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("apply after Run has ended: %v, want %s", err, bourse.CodeUnavailable)
	}
}
