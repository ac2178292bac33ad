package pull

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// watchIn calls Run in the background until ctx is done.
func (r *rig) watchIn(ctx context.Context) { go func() { _ = r.Run(ctx) }() }

// TestLost checks that a job is given up if its poller does not send a heartbeat, and that a job is never given up
// while its poller waits for cancellations.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.watchIn(ctx)
		watched, silent := taskOf(1, "watched"), taskOf(2, "silent")
		r.claimed(watched)
		r.claimed(silent)
		watching, stop := context.WithCancel(t.Context())
		defer stop()
		go r.Cancellations(watching, "me", []string{"watched"}, 0)
		synctest.Wait()
		begin := time.Now()
		exit, err := r.Wait(t.Context(), silent.ID)
		if took := time.Since(begin); err != nil || exit.Code != -1 || !strings.Contains(exit.Error, "no heartbeat") || took < r.cfg.Lost || took > r.cfg.Lost*3/2 {
			t.Errorf("got exit %+v, %v after %s; want a lost job after about %s", exit, err, took, r.cfg.Lost)
		}
		r.wantCode("a late report of the silent poller", r.End("silent", Report{Ticket: "me"}), bourse.CodeConflict)
		time.Sleep(time.Hour)
		if s, err := r.Inspect(t.Context(), watched.ID); err != nil || s.Exit != nil {
			t.Errorf("the watched job: got %+v, %v; want it still running after an hour", s, err)
		}
		stop()
		time.Sleep(r.cfg.Lost / 2)
		r.wantCode("End", r.End("watched", Report{Ticket: "me", Code: 1}), "")
		time.Sleep(time.Hour)
		if exit, _ := r.Wait(t.Context(), watched.ID); exit.Code != 1 {
			t.Errorf("got exit %+v, want code 1", exit)
		}
	})
}

func TestStopTellsThePoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		task := taskOf(1, "a")
		r.claimed(task)
		type told struct {
			names []string
			next  uint64
		}
		mine, all := make(chan told, 1), make(chan told, 1)
		go func() { names, next := r.Cancellations(t.Context(), "me", []string{"a"}, 0); mine <- told{names, next} }()
		go func() { names, next := r.Cancellations(t.Context(), "me", nil, 0); all <- told{names, next} }()
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- r.Stop(t.Context(), task.ID, "SIGTERM", 5*time.Second) }()
		if got := <-mine; !cmp.Equal(got.names, []string{"a"}) {
			t.Errorf("Cancellations returned %v, want a", got.names)
		}
		got := <-all
		if !cmp.Equal(got.names, []string{"a"}) {
			t.Errorf("Cancellations of all jobs returned %v, want a", got.names)
		}
		// A poller that asks about a job again receives the cancellation again. A caller that passes the latest
		// cancellation number does not.
		if names, _ := r.Cancellations(t.Context(), "me", []string{"a"}, 0); len(names) != 1 {
			t.Errorf("second call to Cancellations returned %v, want a", names)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if names, _ := r.Cancellations(ctx, "me", nil, got.next); len(names) != 0 {
			t.Errorf("Cancellations after number %d returned %v, want none", got.next, names)
		}
		r.wantCode("End", r.End("a", Report{Ticket: "me", Code: 143}), "")
		if err := <-stopped; err != nil {
			t.Errorf("Stop: %v", err)
		}
		r.wantCode("Stop of an ended job", r.Stop(t.Context(), task.ID, "SIGTERM", 0), "")
		if names, _ := r.Cancellations(t.Context(), "me", []string{"a", "never-heard-of"}, 0); len(names) != 2 {
			t.Errorf("Cancellations for ended and unknown jobs returned %v, want both", names)
		}
	})
}

// TestStopGivesUp checks that a canceled job is given up in time if its poller does not react, and that Cancellations
// then returns the job.
func TestStopGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		task := taskOf(1, "a")
		r.claimed(task)
		begin := time.Now()
		r.wantCode("Stop", r.Stop(t.Context(), task.ID, "SIGTERM", 5*time.Second), "")
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("Stop took %s, want its timeout", took)
		}
		if exit, _ := r.Wait(t.Context(), task.ID); exit.Code != -1 || !strings.Contains(exit.Error, "after a cancellation") {
			t.Errorf("got exit %+v, want code -1 and an error", exit)
		}
		if names, _ := r.Cancellations(t.Context(), "me", []string{"a"}, 0); len(names) != 1 {
			t.Errorf("Cancellations returned %v, want a", names)
		}
		r.wantCode("End", r.End("a", Report{Ticket: "me"}), bourse.CodeConflict)

		gone := taskOf(2, "b")
		r.claimed(gone)
		r.wantCode("Destroy", r.Destroy(t.Context(), gone.ID.Machine), "")
		if names, _ := r.Cancellations(t.Context(), "me", []string{"b"}, 0); len(names) != 1 {
			t.Errorf("Cancellations after Destroy returned %v, want b", names)
		}
		r.wantCode("End", r.End("b", Report{Ticket: "me"}), bourse.CodeNotFound)
	})
}

func TestInvalidClaimsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, name := range []string{"", "nobody", "../a", "a\x00b", strings.Repeat("a", 1000), "*"} {
			r.wantCode("Claim", r.Claim(name, Claimer{By: "me", Ticket: "me"}), bourse.CodeNotFound)
			r.wantCode("End", r.End(name, Report{Ticket: "me"}), bourse.CodeNotFound)
		}
		jobs := r.poll(t.Context(), "")
		synctest.Wait()
		start := r.begin(t.Context(), taskOf(1, "a"))
		<-jobs
		r.wantCode("the end of an unclaimed job", r.End("a", Report{Ticket: "me"}), bourse.CodeConflict)
		r.wantCode("the claim of an unknown host", r.Claim("a", Claimer{By: "h", Ticket: "h", Host: "h"}), bourse.CodeNotFound)
		me := Claimer{By: "me", Ticket: "me"}
		for range 2 { // as if the first answer had been lost
			r.wantCode("Claim", r.Claim("a", me), "")
		}
		r.wantCode("another's claim", r.Claim("a", Claimer{By: "you", Ticket: "you"}), bourse.CodeConflict)
		<-start
		for _, code := range []int{-1, 256, 1 << 40} {
			r.wantCode("an invalid code", r.End("a", Report{Ticket: "me", Code: code}), bourse.CodeInvalid)
		}
		big := strings.Repeat("x", MaxOutput) + "the end"
		r.wantCode("End", r.End("a", Report{Ticket: "me", Code: 255, Output: []byte(big)}), "")
		if h, _ := r.Held(taskOf(1, "a").ID.Machine); len(h.Output) != MaxOutput || !strings.HasSuffix(string(h.Output), "the end") {
			t.Errorf("%d bytes of output were stored, want the last %d", len(h.Output), MaxOutput)
		}
		r.wantCode("a claim after the end", r.Claim("a", me), bourse.CodeConflict)
	})
}

// TestGivenBack checks that a job counts as failed if its poller returns it.
func TestGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		task := taskOf(1, "a")
		r.claimed(task)
		r.wantCode("End", r.End("a", Report{Ticket: "me", Code: -1, Error: "its poller gave it back"}), "")
		if exit, _ := r.Wait(t.Context(), task.ID); exit.Code != -1 || !exit.Failed() {
			t.Errorf("got exit %+v, want a failure", exit)
		}
	})
}
