package pull

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestEachJobOnce runs many pollers and many starts concurrently. Each job must run exactly once, or be refused and
// never run.
func TestEachJobOnce(t *testing.T) { synctest.Test(t, eachJobOnce) }

func eachJobOnce(t *testing.T) {
	r := newRig(t)
	const pollers, submitters, each = 16, 8, 60
	ctx, stop := context.WithCancel(t.Context())
	var runs [submitters * each]atomic.Int64
	var polling sync.WaitGroup
	for range pollers {
		polling.Go(func() {
			for {
				j, ok, err := r.Next(ctx, "", "")
				if err != nil || !ok {
					return
				}
				if err := r.Claim(j.Name, Claimer{By: "me", Ticket: "me"}); err != nil {
					t.Errorf("claim of an offer: %v", err)
					return
				}
				var n int
				if _, err := fmt.Sscanf(j.Name, "job-%d", &n); err != nil {
					t.Error(err)
				}
				runs[n].Add(1)
				if err := r.End(j.Name, Report{Ticket: "me", Code: n % 256}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	synctest.Wait()
	var filled, refused atomic.Int64
	var submitting sync.WaitGroup
	for s := range submitters {
		submitting.Go(func() {
			for i := range each {
				n := s*each + i
				task := taskOf(n+1, fmt.Sprintf("job-%d", n))
				_, err := r.Start(t.Context(), task)
				switch bourse.CodeOf(err) {
				case "":
					filled.Add(1)
					if exit, err := r.Wait(t.Context(), task.ID); err != nil || exit.Code != n%256 {
						t.Errorf("job %d: %+v, %v", n, exit, err)
					}
				case bourse.CodeInsufficient:
					refused.Add(1)
					if got := runs[n].Load(); got != 0 {
						t.Errorf("job %d was refused but ran %d times", n, got)
					}
					continue
				default:
					t.Errorf("job %d: %v", n, err)
				}
				if got := runs[n].Load(); got != 1 {
					t.Errorf("job %d ran %d times", n, got)
				}
			}
		})
	}
	submitting.Wait()
	stop()
	polling.Wait()
	// A job may be refused, because a poller that has just ended a job may not have called Next again yet.
	if filled.Load()+refused.Load() != submitters*each || filled.Load() < pollers {
		t.Errorf("%d filled and %d refused of %d", filled.Load(), refused.Load(), submitters*each)
	}
}

// TestPollersAreTheCapacity checks that the number of concurrent starts that succeed is the number of waiting pollers.
func TestPollersAreTheCapacity(t *testing.T) { synctest.Test(t, pollersAreTheCapacity) }

func pollersAreTheCapacity(t *testing.T) {
	for range 20 {
		r := newRig(t)
		const pollers, jobs = 16, 20
		var polling, submitting sync.WaitGroup
		for range pollers {
			polling.Go(func() {
				if j, ok, err := r.Next(t.Context(), "", ""); err != nil || !ok || r.Claim(j.Name, Claimer{By: "me", Ticket: "me"}) != nil {
					t.Errorf("a poller got %+v, %v, %v", j, ok, err)
				}
			})
		}
		synctest.Wait()
		var refused atomic.Int64
		for n := range jobs {
			submitting.Go(func() {
				if _, err := r.Start(t.Context(), taskOf(n+1, fmt.Sprintf("job-%d", n))); bourse.CodeOf(err) == bourse.CodeInsufficient {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		submitting.Wait()
		polling.Wait()
		if got := refused.Load(); got != jobs-pollers {
			t.Errorf("%d jobs were refused, want %d", got, jobs-pollers)
		}
	}
}

// TestOneClaimWins checks that only one of many concurrent claims of a job succeeds.
func TestOneClaimWins(t *testing.T) { synctest.Test(t, oneClaimWins) }

func oneClaimWins(t *testing.T) {
	r := newRig(t)
	for n := range 20 {
		name := fmt.Sprintf("job-%d", n)
		jobs := r.poll(t.Context(), "")
		synctest.Wait()
		start := r.begin(t.Context(), taskOf(n+1, name))
		<-jobs
		var won atomic.Int64
		var claiming sync.WaitGroup
		for c := range 16 {
			claiming.Go(func() {
				switch err := r.Claim(name, Claimer{By: fmt.Sprint(c), Ticket: Ticket(fmt.Sprint(c))}); bourse.CodeOf(err) {
				case "":
					won.Add(1)
				case bourse.CodeConflict:
				default:
					t.Errorf("claim: %v", err)
				}
			})
		}
		claiming.Wait()
		if s := <-start; s.err != nil || won.Load() != 1 {
			t.Errorf("%d claims succeeded, Start returned %v; want one", won.Load(), s.err)
		}
	}
}

// TestDestroyAfterAFailedClaim destroys a machine while the claim of its job is being written. If the claim fails, Destroy
// must withdraw the offer instead of waiting for another claim.
func TestDestroyAfterAFailedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		var polling, starting, destroying sync.WaitGroup
		polling.Go(func() { _, _, _ = r.Next(ctx, "", "") }) // Start needs a poller
		synctest.Wait()
		task := taskOf(1, "job-1")
		starting.Go(func() {
			if _, err := r.Start(ctx, task); bourse.CodeOf(err) != bourse.CodeCanceled {
				t.Errorf("start: got %v, want %s", err, bourse.CodeCanceled)
			}
		})
		synctest.Wait()
		enter := func(p phase) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.names["job-1"].enter(p)
		}
		enter(claiming)
		destroying.Go(func() {
			if err := r.Destroy(ctx, task.ID.Machine); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		enter(offered)
		destroying.Wait()
		starting.Wait()
		stop()
		polling.Wait()
	})
}
