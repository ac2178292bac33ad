package worker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/driver/pull"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/admit"
)

// roomy is a driver that always reports room at its pollers.
type roomy struct{ driver.Driver }

func (roomy) Room(driver.Limits) *bourse.Refusal { return nil }

// Invariants 5 and 6 also hold for machines that pollers run.
func TestInvariants5And6OfPulledMachines(t *testing.T) {
	for name, away := range map[string]time.Duration{"at once": 0, "past every deadline": time.Minute} {
		t.Run(name, func(t *testing.T) {
			enumerateAbsences(t, func() *rig { return &rig{containers: drivertest.NewMemory(), pull: true} }, away, func(h *host, d *diary) {
				checkBounce(h, d)
				checkIntent(h, d)
			})
		})
	}
}

// gatewayHost returns a worker with real pollers.
func gatewayHost(t *testing.T) (*host, *pull.Driver) {
	t.Helper()
	d, err := pull.Open(pull.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	h := newHostDown(t, func(c *Config) { c.Pull = d })
	h.start(nil)
	return h, d
}

// poll lets a poller ask for a job, and returns a channel that receives the job.
func poll(t *testing.T, d *pull.Driver) <-chan pull.Job {
	jobs := make(chan pull.Job, 1)
	go func() {
		if j, ok, _ := d.Next(t.Context(), "", ""); ok {
			jobs <- j
		}
	}()
	synctest.Wait()
	return jobs
}

func pulled(o *bourse.Order) {
	o.Config.Image = bourse.ImagePull
	o.Config.Guest = &bourse.Guest{CPUs: 64, MemoryMB: 1 << 20} // more than the gateway's own host has
}

func TestAPulledMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := gatewayHost(t)
		defer h.crash()
		order := newOrder(t, pulled)
		for what, ask := range map[string]func() *bourse.Refusal{
			"quote": func() *bourse.Refusal { q, _ := h.quote(t.Context(), order); return q.Refusal },
			"claim": func() *bourse.Refusal {
				_, refusal, _ := h.claim(t.Context(), &bourse.Claim{Order: *order})
				return refusal
			},
		} {
			if r := ask(); r == nil || r.Reason != bourse.RefusedResource || r.Resource != admit.ResourcePollers || r.Worker != "w1" {
				t.Errorf("%s without a poller: %+v, want a refusal because there is no poller", what, r)
			}
		}
		jobs := poll(t, d)
		go func() {
			if err := d.Claim((<-jobs).Name, pull.Claimer{By: "me", Ticket: "me"}); err != nil {
				t.Error(err)
			}
		}()
		m := h.place(pulled, func(o *bourse.Order) { o.Name, o.Config.Env = "job", map[string]string{"PORT": "4281"} })
		if m.State != bourse.StateStarted || len(m.Takes) != 0 || m.Boot.PID != 0 || m.Boot.Port != 0 {
			t.Errorf("machine %+v, want it started, without any of this host's resources", m)
		}
		if _, err := h.dial(t.Context(), m.ID, 4281); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("a tunnel to a port of the gateway's host: %v, want failed_precondition", err)
		}
		if err := d.End("job", pull.Report{Ticket: "me", Code: 4}); err != nil {
			t.Fatal(err)
		}
		m, err := h.state.AwaitMachine(t.Context(), m.ID, func(m *bourse.Machine) bool { return m.State == bourse.StateStopped })
		if err != nil || m.Boot.Exit.Code != 4 {
			t.Errorf("machine %+v, %v; want it stopped with exit code 4", m, err)
		}
	})
}

// If no poller claims a machine's job, its order is refused at the deadline, and not
// before.
func TestAPulledMachineThatNobodyClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := gatewayHost(t)
		defer h.crash()
		poll(t, d)
		begin := time.Now()
		order := newOrder(t, pulled, func(o *bourse.Order) { o.Timeout = bourse.Duration(40 * time.Second) })
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
		if err != nil || refusal == nil || refusal.Resource != admit.ResourcePollers || !strings.Contains(refusal.Detail, "deadline") {
			t.Errorf("refusal %+v, %v; want a refusal because no poller claimed the machine", refusal, err)
		}
		if took := time.Since(begin); took < 39*time.Second || took > 41*time.Second {
			t.Errorf("the refusal took %s, want the order's 40 s", took)
		}
	})
}

// An order that is canceled before a poller claims its job ends immediately, and the job
// can no longer be claimed.
func TestAPulledMachineIsCanceledBeforeItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, end := range map[string]func(h *host, o *bourse.Order, id bourse.MachineID) error{
			"cancel": func(h *host, o *bourse.Order, _ bourse.MachineID) error {
				_, err := h.cancel(t.Context(), o.ID)
				return err
			},
			"stop": func(h *host, _ *bourse.Order, id bourse.MachineID) error {
				_, err := h.machines.Stop(t.Context(), id, fabric.MachineAction{})
				return err
			},
		} {
			h, d := gatewayHost(t)
			jobs := poll(t, d)
			order := newOrder(t, pulled, func(o *bourse.Order) { o.Name = "job" })
			answer := make(chan *bourse.Refusal, 1)
			go func() {
				_, refusal, err := h.claim(context.WithoutCancel(t.Context()), &bourse.Claim{Order: *order})
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
				answer <- refusal
			}()
			j := <-jobs
			begin := time.Now()
			if err := end(h, order, j.Machine); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if r := <-answer; r == nil || r.Reason != bourse.RefusedCanceled || time.Since(begin) > time.Second {
				t.Errorf("%s: %+v after %s, want canceled at once", what, r, time.Since(begin))
			}
			if err := d.Claim(j.Name, pull.Claimer{By: "late", Ticket: "late"}); bourse.CodeOf(err) != bourse.CodeNotFound {
				t.Errorf("%s: late claim: %v, want not_found", what, err)
			}
			h.crash()
		}
	})
}

// The daemon dies while a job is offered, or just after a poller has claimed it. The
// next daemon withdraws the offer, or adopts the job.
func TestAPulledMachineAndARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, claimed := range []bool{false, true} {
			h, d := gatewayHost(t)
			jobs := poll(t, d)
			order := newOrder(t, pulled, func(o *bourse.Order) { o.Name = "job" })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			answer := make(chan struct{})
			go func() {
				defer close(answer)
				_, _, _ = h.claim(ctx, &bourse.Claim{Order: *order}) // the claim fails when its worker dies
			}()
			j := <-jobs
			if claimed { // the claim can no longer be recorded in the store
				h.stop()
				if err := d.Claim(j.Name, pull.Claimer{By: "me", Ticket: "me"}); err != nil {
					claimed = false // the offer was already withdrawn
				}
			}
			h.crash()
			cancel()
			<-answer
			h.start(nil)
			fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order}) // the broker repeats the order
			switch {
			case err != nil:
				t.Errorf("claimed %v: %v", claimed, err)
			case claimed && (fill == nil || fill.Machine.ID != j.Machine || fill.Machine.State != bourse.StateStarted):
				t.Errorf("the order has fill %+v, refusal %+v; want the claimed machine", fill, refusal)
			case !claimed && refusal == nil:
				t.Errorf("an order that nobody claimed has fill %+v", fill)
			}
			h.crash()
		}
	})
}

// If a claim is repeated while the first one is in progress, both end with the same
// result, even if no poller claims the machine.
func TestARepeatedClaimOfAnUnclaimedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := gatewayHost(t)
		defer h.crash()
		jobs := poll(t, d)
		order := newOrder(t, pulled)
		answers := make(chan *bourse.Refusal, 2)
		claim := func() {
			fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
			if err != nil || fill != nil {
				t.Errorf("fill %+v, error %v; want a refusal", fill, err)
			}
			answers <- refusal
		}
		go claim()
		<-jobs
		go claim()
		for range 2 {
			if r := <-answers; r == nil {
				t.Error("no refusal")
			}
		}
	})
}
