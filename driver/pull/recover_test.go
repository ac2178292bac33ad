package pull

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// TestKilledAfterTheClaim checks that a daemon that restarts after a claim knows the job: it accepts a repeated claim
// and the report that the job has ended.
func TestKilledAfterTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := taskOf(1, "a"), taskOf(2, "b")
		r.claimed(a)
		r.claimed(b)
		if err := r.End("b", Report{Ticket: "me", Code: 7, Output: []byte("said\n")}); err != nil {
			t.Fatal(err)
		}
		held := map[driver.TaskID]driver.Status{}
		for _, s := range r.open() {
			held[s.ID] = s
		}
		if len(held) != 2 || held[a.ID].Exit != nil || held[b.ID].Exit == nil || held[b.ID].Exit.Code != 7 {
			t.Fatalf("recovered %+v, want a running and b ended with code 7", held)
		}
		if s, err := r.Start(t.Context(), a); err != nil || s != held[a.ID] {
			t.Errorf("Start returned %+v, %v; want the existing job", s, err)
		}
		r.wantCode("a claim of the job", r.Claim("a", Claimer{By: "you", Ticket: "you"}), bourse.CodeConflict)
		r.wantCode("the same claim", r.Claim("a", Claimer{By: "me", Ticket: "me"}), "")
		r.wantCode("End", r.End("a", Report{Ticket: "me", Code: 3}), "")
		r.wantCode("End again", r.End("b", Report{Ticket: "me", Code: 9}), "")
		if exit, err := r.Wait(t.Context(), b.ID); err != nil || exit.Code != 7 {
			t.Errorf("b: got %+v, %v; want the exit that was reported first", exit, err)
		}
		lines := 0
		_ = r.Logs(t.Context(), b.ID.Machine, driver.LogQuery{}, func(driver.LogLine) error { lines++; return nil })
		if lines != 1 {
			t.Errorf("got %d log lines, want 1", lines)
		}
	})
}

// TestADaemonDiesInEveryWrite kills the daemon at every stage of every write. An acknowledged claim or end must still
// be recorded after the restart. An unacknowledged claim or end may or may not be recorded.
func TestADaemonDiesInEveryWrite(t *testing.T) {
	for _, stage := range []string{stageWritten, stageRenamed, stageSynced} {
		for _, write := range []string{"claim", "end", "the next boot's claim"} {
			t.Run(fmt.Sprintf("%s/%s", write, stage), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { dieIn(t, stage, write) })
			})
		}
	}
}

func dieIn(t *testing.T, stage, write string) {
	r := newRig(t)
	task := taskOf(1, "a")
	die := func() {
		r.fault = func(s string) error {
			if s == stage {
				return errDied
			}
			return nil
		}
	}
	told := stage == "never"
	claim := func(task driver.Task, dying bool) {
		t.Helper()
		jobs := r.poll(t.Context(), "")
		synctest.Wait()
		start := r.begin(t.Context(), task)
		<-jobs
		if dying {
			die()
		}
		err := r.Claim("a", Claimer{By: "me", Ticket: "me"})
		if dying {
			r.wantCode("Claim", err, bourse.CodeUnavailable)
			r.mu.Lock()
			r.withdraw(r.offers[task.ID.Machine]) // the caller of Start died with the daemon
			r.mu.Unlock()
			<-start
			return
		}
		r.wantCode("Claim", err, "")
		<-start
	}
	claim(task, write == "claim")
	if write != "claim" {
		if write == "end" {
			die()
		}
		err := r.End("a", Report{Ticket: "me", Code: 5})
		if told = err == nil; told != (write != "end") {
			t.Fatalf("End: %v", err)
		}
	}
	next := task
	next.ID.Boot = 2
	if write == "the next boot's claim" {
		claim(next, true)
	}
	held := r.open()
	if left, _ := filepath.Glob(filepath.Join(r.dir, jobsDir, "*"+tempSuffix)); len(left) > 0 {
		t.Errorf("%v remains", left)
	}
	for _, s := range held {
		if s.ID.Boot == 1 && told && (s.Exit == nil || s.Exit.Code != 5) {
			t.Errorf("recovered %+v, want the acknowledged end", s)
		}
	}
	if write != "claim" && len(held) != 1 {
		t.Errorf("recovered %+v, want the claimed job", held)
	}
	// In every case, a repeated Start results in one running job, whose end can be reported.
	last := task
	if write == "the next boot's claim" {
		last = next
	}
	if _, err := r.Inspect(t.Context(), last.ID); err != nil {
		claim(last, false)
	}
	r.wantCode("End", r.End("a", Report{Ticket: "me", Code: 5}), "")
	if exit, err := r.Wait(t.Context(), last.ID); err != nil || exit.Code != 5 {
		t.Errorf("got exit %+v, %v; want code 5", exit, err)
	}
}

// TestAFullDisk checks that a failed write changes nothing, and that the job can be claimed or ended once the disk has
// space again.
func TestAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		full := func(yes bool) {
			r.fault = func(string) error {
				if yes {
					return errDied
				}
				return nil
			}
		}
		jobs := r.poll(t.Context(), "")
		synctest.Wait()
		task := taskOf(1, "a")
		start := r.begin(t.Context(), task)
		<-jobs
		full(true)
		r.wantCode("Claim", r.Claim("a", Claimer{By: "me", Ticket: "me"}), bourse.CodeUnavailable)
		full(false)
		r.wantCode("Claim", r.Claim("a", Claimer{By: "me", Ticket: "me"}), "")
		if s := <-start; s.err != nil {
			t.Error(s.err)
		}
		full(true)
		r.wantCode("End", r.End("a", Report{Ticket: "me"}), bourse.CodeUnavailable)
		r.wantCode("Stop", r.Stop(t.Context(), task.ID, "SIGTERM", 0), bourse.CodeUnavailable)
		full(false)
		r.wantCode("End", r.End("a", Report{Ticket: "me"}), "")
	})
}

// TestForeignFiles checks that the driver starts even if its directory contains foreign files.
func TestForeignFiles(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(r.dir, jobsDir)
	for name, text := range map[string]string{
		"00000000000001.json":     "{",
		"00000000000002.json":     `{"form":1,"id":{"machine":"00000000000003","boot":1},"name":"a"}`,
		"00000000000004.json":     `{"form":9,"id":{"machine":"00000000000004","boot":1},"name":"a"}`,
		"00000000000005.json":     `{"form":1,"id":{"machine":"00000000000005","boot":0},"name":"a"}`,
		"00000000000006.json":     `{"form":1,"id":{"machine":"00000000000006","boot":1},"name":"../a"}`,
		"00000000000007.json.tmp": `{"form":1,"id":{"machine":"00000000000007","boot":1},"name":"a"}`,
		"README":                  "hello",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "00000000000008.json")); err != nil {
		t.Fatal(err)
	}
	if held := r.open(); len(held) > 0 {
		t.Errorf("recovered %+v, want no jobs", held)
	}
}

// FuzzRecord checks that every decoded record is valid, and that encoding and decoding it again does not change it.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"form":1,"id":{"machine":"00000000000001","boot":1},"name":"a","by":"me","size":{"cpu":1,"memory":2,"disk":3},"started_at":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"form":1,"id":{"machine":"00000000000001","boot":1},"name":"a","exit":{"code":1},"output":"aGk="}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decodeRecord(text)
		if err != nil {
			return
		}
		if r.ID.Machine.Validate() != nil || r.ID.Boot < 1 || bourse.ValidateMachineName(r.Name) != nil {
			t.Errorf("%q was decoded as %+v", text, r)
		}
		_ = jobOf(&r).status()
	})
}
