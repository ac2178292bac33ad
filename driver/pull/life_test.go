package pull

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

func TestLifeOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		task := taskOf(1, "a")
		task.Env, task.Dir = []string{"A=b"}, "/tmp"
		j := r.claimed(task)
		want := Job{Name: "a", Machine: task.ID.Machine, Command: task.Command, Env: task.Env, Dir: "/tmp", Size: Size{CPU: 1000, Memory: 256}}
		if diff := cmp.Diff(want, j); diff != "" {
			t.Errorf("job (-want +got):\n%s", diff)
		}
		if s, err := r.Start(t.Context(), task); err != nil || s.Exit != nil {
			t.Errorf("second Start returned %+v, %v; want the first one's result", s, err)
		}
		if h, ok := r.Held(task.ID.Machine); !ok || h.By != "me" {
			t.Errorf("held %+v, %v; want it held by me", h, ok)
		}
		waited := make(chan bourse.Exit, 1)
		go func() {
			exit, _ := r.Wait(t.Context(), task.ID)
			waited <- exit
		}()
		followed := make(chan []string, 1)
		go func() {
			var lines []string
			_ = r.Logs(t.Context(), task.ID.Machine, driver.LogQuery{Follow: true}, func(l driver.LogLine) error {
				lines = append(lines, l.Text)
				return nil
			})
			followed <- lines
		}()
		synctest.Wait()
		long := strings.Repeat("x", maxLine+1)
		for range 2 { // a repeated End has no effect
			if err := r.End("a", Report{Ticket: "me", Code: 3, Output: []byte("one\n" + long + "\nlast")}); err != nil {
				t.Fatal(err)
			}
		}
		if exit := <-waited; exit.Code != 3 || exit.Error != "" || exit.At.IsZero() {
			t.Errorf("got exit %+v, want code 3", exit)
		}
		synctest.Wait() // wait until the log has been read, because its unread part is lost with the machine
		r.wantCode("Forget", r.DiscardExit(t.Context(), task.ID), "")
		_, err := r.Inspect(t.Context(), task.ID)
		r.wantCode("Inspect after Forget", err, bourse.CodeNotFound)
		r.wantCode("Destroy", r.Destroy(t.Context(), task.ID.Machine), "")
		if diff := cmp.Diff([]string{"one", long[:maxLine], "x", "last"}, <-followed); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		r.wantCode("End after Destroy", r.End("a", Report{Ticket: "me"}), bourse.CodeNotFound)
		if held := r.open(); len(held) > 0 {
			t.Errorf("recovered %+v, want no jobs", held)
		}
	})
}

// An order is refused at once if no poller is waiting.
func TestNoPollerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		begin := time.Now()
		_, err := r.Start(t.Context(), taskOf(1, "a"))
		r.wantCode("Start", err, bourse.CodeInsufficient)
		if took := time.Since(begin); took > 0 {
			t.Errorf("the refusal took %s", took)
		}
		if no := r.Room(driver.Limits{}); no == nil || no.Reason != bourse.RefusedResource || no.Resource != "pollers" {
			t.Errorf("got refusal %+v, want resource pollers", no)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.poll(ctx, "")
		synctest.Wait()
		if no := r.Room(driver.Limits{CPUQuota: 1 << 40}); no != nil {
			t.Errorf("got refusal %+v although a poller is waiting", no)
		}
	})
}

// TestAnOfferGoesToTheNext checks that a job is offered to another poller if the first one does
// not claim it, and that the first one may still claim it.
func TestAnOfferGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		silent := r.poll(t.Context(), "")
		synctest.Wait()
		start := r.begin(t.Context(), taskOf(1, "a"))
		<-silent
		begin := time.Now()
		eager := r.poll(t.Context(), "")
		if j := <-eager; j.Name != "a" || time.Since(begin) != r.cfg.Offer {
			t.Errorf("got job %q after %s, want a after %s", j.Name, time.Since(begin), r.cfg.Offer)
		}
		time.Sleep(r.cfg.Offer) // no poller is waiting now, so the next one that calls gets the offer at once
		begin = time.Now()
		if j := <-r.poll(t.Context(), ""); j.Name != "a" || time.Since(begin) != 0 {
			t.Errorf("got job %q after %s, want a at once", j.Name, time.Since(begin))
		}
		r.wantCode("the silent poller's claim", r.Claim("a", Claimer{By: "silent", Ticket: "silent"}), "")
		r.wantCode("the second poller's claim", r.Claim("a", Claimer{By: "eager", Ticket: "eager"}), bourse.CodeConflict)
		if s := <-start; s.err != nil {
			t.Error(s.err)
		}
	})
}

// TestAPollerThatLeft checks that Start does not wait for a poller whose connection breaks at the
// moment of the offer.
func TestAPollerThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, leave := context.WithCancel(t.Context())
		gone := r.poll(ctx, "")
		synctest.Wait()
		there := r.poll(t.Context(), "")
		synctest.Wait()
		r.mu.Lock() // the poller is offered the job, and disconnects before it receives the offer
		task := taskOf(1, "a")
		j, err := r.Driver.begin(&task)
		leave()
		r.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		select {
		case got := <-gone: // it had received the offer, so it counts as a poller that does not claim
			if got.Name != "a" {
				t.Errorf("the disconnected poller got %+v", got)
			}
		case got := <-there:
			if got.Name != "a" || time.Since(begin) != 0 {
				t.Errorf("got %+v after %s, want a at once", got, time.Since(begin))
			}
		}
		r.mu.Lock()
		r.withdraw(j)
		r.mu.Unlock()
		ctx, leave = context.WithCancel(t.Context())
		leave()
		if _, ok, err := r.Next(ctx, "", ""); ok || err != nil {
			t.Errorf("Next with a canceled context returned %v, %v; want no job", ok, err)
		}
	})
}

// TestAWaitThatEnds checks that a poller whose deadline passes at the moment of the offer
// receives the offer, because it is still connected.
func TestAWaitThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		jobs := r.poll(ctx, "")
		time.Sleep(time.Second - time.Nanosecond)
		start := r.begin(t.Context(), taskOf(1, "a"))
		time.Sleep(time.Nanosecond)
		if j := <-jobs; j.Name != "a" {
			t.Errorf("got %+v, want a", j)
		}
		r.wantCode("Claim", r.Claim("a", Claimer{By: "me", Ticket: "me"}), "")
		<-start
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok, err := r.Next(ctx, "", ""); ok || err != nil {
			t.Errorf("Next without a job returned %v, %v; want no job", ok, err)
		}
	})
}

// TestAnOfferIsWithdrawn checks that a job can no longer be claimed once its start's deadline has
// passed or its start has been canceled.
func TestAnOfferIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for want, ctx := range map[bourse.Code]func() (context.Context, context.CancelFunc){
			bourse.CodeTimeout:  func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Second) },
			bourse.CodeCanceled: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		} {
			ctx, cancel := ctx()
			jobs := r.poll(t.Context(), "")
			synctest.Wait()
			start := r.begin(ctx, taskOf(1, "a"))
			<-jobs
			if want == bourse.CodeCanceled {
				cancel()
			}
			r.wantCode("Start", (<-start).err, want)
			cancel()
			r.wantCode("a late claim", r.Claim("a", Claimer{By: "late", Ticket: "late"}), bourse.CodeNotFound)
			r.wantCode("a late end", r.End("a", Report{Ticket: "me"}), bourse.CodeNotFound)
		}
		if held := r.open(); len(held) > 0 {
			t.Errorf("recovered %+v, want no jobs", held)
		}
	})
}

// TestDestroyOfAnOffer checks that destroying a machine withdraws its offer.
func TestDestroyOfAnOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		jobs := r.poll(t.Context(), "")
		synctest.Wait()
		task := taskOf(1, "a")
		start := r.begin(t.Context(), task)
		<-jobs
		r.wantCode("Destroy", r.Destroy(t.Context(), task.ID.Machine), "")
		r.wantCode("Start", (<-start).err, bourse.CodeCanceled)
	})
}

func TestBootsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		task := taskOf(1, "a")
		r.claimed(task)
		next := task
		next.ID.Boot = 2
		_, err := r.Start(t.Context(), next)
		r.wantCode("a boot while the previous one runs", err, bourse.CodeFailedPrecondition)
		r.wantCode("End", r.End("a", Report{Ticket: "me", Output: []byte("first\n")}), "")
		if j := r.claimed(next); j.Name != "a" {
			t.Errorf("got name %q for the second boot, want a", j.Name)
		}
		_, err = r.Start(t.Context(), task)
		r.wantCode("an older boot", err, bourse.CodeFailedPrecondition)
		_, err = r.Inspect(t.Context(), task.ID)
		r.wantCode("Inspect of an older boot", err, bourse.CodeNotFound)
		// The name of an unfinished job is not given to another job.
		other := taskOf(2, "a")
		if j := r.claimed(other); j.Name != string(other.ID.Machine) {
			t.Errorf("name of the job of another machine named a: got %q, want the machine's id", j.Name)
		}
		r.wantCode("End", r.End("a", Report{Ticket: "me"}), "")
		if j := r.claimed(taskOf(3, "a")); j.Name != "a" {
			t.Errorf("name of the job of another machine named a, after a has ended: got %q, want a", j.Name)
		}
	})
}
