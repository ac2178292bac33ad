package pull

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a driver and its directory, for use in a bubble of virtual time.
type rig struct {
	t   *testing.T
	dir string
	*Driver
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	r.open()
	t.Cleanup(func() { _ = r.Close() }) // may have been closed before
	return r
}

// open starts another daemon, as if the previous one had been killed, and returns the tasks that it recovers.
func (r *rig) open() []driver.Status {
	r.t.Helper()
	if r.Driver != nil {
		_ = r.Close() // a killed daemon would not see the error
	}
	d, err := Open(Config{Dir: r.dir})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Driver = d
	held, err := d.Recover(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return held
}

func taskOf(n int, name string) driver.Task {
	return driver.Task{
		ID:    driver.TaskID{Machine: bourse.MachineID(fmt.Sprintf("%014x", n)), Boot: 1},
		Image: bourse.ImagePull, Name: name, Command: []string{"echo", name},
		Limits: driver.Limits{CPUQuota: 1000, Memory: 256},
	}
}

// started is the result of a Start.
type started struct {
	status driver.Status
	err    error
}

// begin starts a task in the background. The returned channel receives the result.
func (r *rig) begin(ctx context.Context, task driver.Task) <-chan started {
	out := make(chan started, 1)
	go func() {
		s, err := r.Start(ctx, task)
		out <- started{s, err}
	}()
	return out
}

// poll waits for a job in the background. The returned channel receives the job.
func (r *rig) poll(ctx context.Context, host string) <-chan Job {
	out := make(chan Job, 1)
	go func() {
		j, ok, err := r.Next(ctx, host, Ticket(host))
		if err != nil {
			r.t.Errorf("Next: %v", err)
		}
		if ok {
			out <- j
		}
		close(out)
	}()
	return out
}

// claimed starts a task and has a poller claim it. It returns the poller's job.
func (r *rig) claimed(task driver.Task) Job {
	r.t.Helper()
	jobs := r.poll(r.t.Context(), "")
	synctest.Wait()
	start := r.begin(r.t.Context(), task)
	j := <-jobs
	if err := r.Claim(j.Name, Claimer{By: "me", Ticket: "me"}); err != nil {
		r.t.Fatalf("Claim: %v", err)
	}
	if s := <-start; s.err != nil || s.status.ID != task.ID || s.status.StartedAt.IsZero() {
		r.t.Fatalf("Start returned %+v, %v", s.status, s.err)
	}
	return j
}

func (r *rig) wantCode(what string, err error, want bourse.Code) {
	r.t.Helper()
	if got := bourse.CodeOf(err); got != want {
		r.t.Errorf("%s: got %q (%v), want %q", what, got, err, want)
	}
}

var errDied = errors.New("the daemon died")
