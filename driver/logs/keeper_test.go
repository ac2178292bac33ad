package logs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/companion"
)

// TestKeep checks that the log contains all of a boot's output on both streams, including a last
// line without a newline.
func TestKeep(t *testing.T) {
	k := newKeeper(t, nil)
	s := newShim(t, someMachine, 1)
	for range 2 { // a repeated call is not an error
		mustKeep(t, k, s.Source)
	}
	s.say(t, "one\ntwo\n"+strings.Repeat("x", 3*maxLine)+"\nhalf")
	if _, err := s.err.WriteString("wrong\n"); err != nil {
		t.Fatal(err)
	}
	s.end(t)
	for range 2 {
		mustDone(t, k, s.Source)
	}
	want := map[string][]string{"stdout": {"one", "two", strings.Repeat("x", 3*maxLine), "half"}, "stderr": {"wrong"}}
	if diff := cmp.Diff(want, lines(t, k, someMachine)); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}

// TestKeepRefuses checks the errors for invalid sources.
func TestKeepRefuses(t *testing.T) {
	k := newKeeper(t, nil)
	s := newShim(t, someMachine, 1)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Source)
		want   bourse.Code
	}{
		"missing":                  {func(s *Source) { s.Stdout += "x" }, bourse.CodeNotFound},
		"a file":                   {func(s *Source) { s.Stderr = file }, bourse.CodeInvalid},
		"a device":                 {func(s *Source) { s.Stdout = os.DevNull }, bourse.CodeInvalid},
		"one for both":             {func(s *Source) { s.Stderr = s.Stdout }, bourse.CodeInvalid},
		"no boot":                  {func(s *Source) { s.Boot = 0 }, bourse.CodeInvalid},
		"a path as the machine id": {func(s *Source) { s.Machine = "../../x" }, bourse.CodeInvalid},
	} {
		src := s.Source
		c.change(&src)
		if err := k.Keep(t.Context(), src); bourse.CodeOf(err) != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	if free, err := companion.LockFree(k.layout.lock()); k.layout.dir != "" && (!free || err != nil) {
		t.Errorf("a process was started unnecessarily")
	}
}

// TestTerminal checks that the output of a terminal is a single stream.
func TestTerminal(t *testing.T) {
	k := newKeeper(t, nil)
	s := newShim(t, someMachine, 1)
	s.Stderr = ""
	mustKeep(t, k, s.Source)
	s.say(t, "hello\n")
	s.end(t)
	mustDone(t, k, s.Source)
	if diff := cmp.Diff(map[string][]string{"stdout": {"hello"}}, lines(t, k, someMachine)); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}

// TestDoneIsBounded checks that Done returns even if a process holds an output open and continues
// to write.
func TestDoneIsBounded(t *testing.T) {
	k := newKeeper(t, nil)
	s := newShim(t, someMachine, 1)
	mustKeep(t, k, s.Source)
	s.say(t, "before\n")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := k.Done(ctx, s.Source); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Done returned %v, want its context's error", err)
	}
	s.say(t, "meanwhile\n") // a canceled Done must not end the logging
	begun := time.Now()
	mustDone(t, k, s.Source)
	if took := time.Since(begun); took > doneGrace+5*time.Second {
		t.Errorf("Done took %s", took)
	}
	if diff := cmp.Diff([]string{"before", "meanwhile"}, lines(t, k, someMachine)["stdout"]); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}

// TestDaemonReplaced checks that the next daemon can follow a log from where the previous one
// stopped, including lines written in between.
func TestDaemonReplaced(t *testing.T) {
	k := newKeeper(t, nil)
	s := newShim(t, someMachine, 1)
	mustKeep(t, k, s.Source)
	s.say(t, "one\n")
	awaitLine(t, k, "one")
	pid := k.process()
	for _, text := range []string{"two", "three"} {
		cut := make(chan error, 1)
		go func() {
			cut <- k.Logs(context.WithoutCancel(t.Context()), someMachine, driver.LogQuery{Tail: -1, Follow: true}, func(driver.LogLine) error { return nil })
		}()
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-cut; bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("Logs returned %v when its daemon ended, want unavailable", err)
		}
		s.say(t, text+"\n")
		k = NewKeeper(k.cfg)
		t.Cleanup(func() { _ = k.Close() })
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustKeep(t, k, s.Source)
		awaitLine(t, k, text)
	}
	if k.process() != pid {
		t.Errorf("keeper %d was unnecessarily replaced by %d", pid, k.process())
	}
	if diff := cmp.Diff([]string{"one", "two", "three"}, lines(t, k, someMachine)["stdout"]); diff != "" {
		t.Errorf("the log (-want +got):\n%s", diff)
	}
}

// TestDestroy checks that Destroy ends the followers of a log, whether or not a process is
// running.
func TestDestroy(t *testing.T) {
	for name, kept := range map[string]bool{"read": true, "never read": false} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t, nil)
			s := newShim(t, someMachine, 1)
			if kept {
				mustKeep(t, k, s.Source)
				s.say(t, "one\n")
				awaitLine(t, k, "one")
			}
			done := make(chan error, 1)
			follows := make(chan struct{})
			go func() {
				first := true
				done <- k.Logs(t.Context(), someMachine, driver.LogQuery{Follow: true}, func(driver.LogLine) error {
					if first {
						close(follows)
					}
					first = false
					return nil
				})
			}()
			if kept {
				<-follows
			} else {
				eventually(t, "it follows", func() bool {
					k.mu.Lock()
					defer k.mu.Unlock()
					return k.removals[someMachine] != nil
				})
			}
			for range 2 {
				if err := k.Destroy(t.Context(), someMachine); err != nil {
					t.Fatalf("Destroy: %v", err)
				}
			}
			if err := <-done; err != nil {
				t.Errorf("Logs returned %v after Destroy, want no error", err)
			}
			if got := lines(t, k, someMachine); len(got) > 0 {
				t.Errorf("log of a destroyed machine: got lines %v, want none", got)
			}
			for _, dir := range []string{k.layout.files().dir(someMachine)} {
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s still exists: %v", dir, err)
				}
			}
			mustKeep(t, k, newShim(t, someMachine, 1).Source) // the new log does not contain lines of the destroyed one
			if got := lines(t, k, someMachine); len(got) > 0 {
				t.Errorf("log of a new machine: got lines %v, want none", got)
			}
		})
	}
}

// TestIdleKeeperEnds checks that an idle process exits and that a new one starts when it is
// needed.
func TestIdleKeeperEnds(t *testing.T) {
	t.Setenv("KEEPER_GRACE", "250ms") // long enough to connect on a busy host
	k := newKeeper(t, nil)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k.process() != 0 {
		t.Errorf("process %d was started before there was output to read", k.process())
	}
	for boot := 1; boot <= 3; boot++ {
		s := newShim(t, someMachine, boot)
		mustKeep(t, k, s.Source)
		s.say(t, "hello\n")
		s.end(t)
		mustDone(t, k, s.Source)
		eventually(t, "the keeper has ended", func() bool {
			free, err := companion.LockFree(k.layout.lock())
			return free && err == nil
		})
	}
	if got := lines(t, k, someMachine)["stdout"]; len(got) != 3 {
		t.Errorf("log: got %q, want a line from each boot", got)
	}
}

// TestForeignKeeperIsReplaced checks that a keeper from another release is replaced without losing
// the output that it has read.
func TestForeignKeeperIsReplaced(t *testing.T) {
	k := newKeeper(t, nil)
	l, err := k.prepare()
	if err != nil {
		t.Fatal(err)
	}
	p, err := companion.Spawn(t.Context(), []string{"/proc/self/exe", "foreign", l.dir}, l.log())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := p.Wait(); ended <- err }()
	s := newShim(t, someMachine, 1)
	s.say(t, "hello\n")
	mustKeep(t, k, s.Source)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	awaitLine(t, k, "hello")
}

// TestKeeperThatCannotStart checks the errors that are returned when the process cannot be started.
func TestKeeperThatCannotStart(t *testing.T) {
	k := newKeeper(t, func(c *KeeperConfig) { c.Command = []string{"no-such-program-anywhere"} })
	if err := k.Keep(t.Context(), newShim(t, someMachine, 1).Source); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("got %v, want invalid", err)
	}
	k = newKeeper(t, func(c *KeeperConfig) { c.Command = []string{"sh", "-c", "echo no >&2; exit 1"} })
	if err := k.Keep(t.Context(), newShim(t, someMachine, 1).Source); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("got %v, want unavailable", err)
	}
}
