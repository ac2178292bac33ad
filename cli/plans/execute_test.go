package plans

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// oneMachine is an API with one machine that supports only a few calls. cordon handles requests to cordon the machine.
type oneMachine struct {
	run.API
	cordon func(ctx context.Context, cordoned bool) error

	mu       sync.Mutex
	statuses []release.Status
}

func (o *oneMachine) Machine(context.Context, bourse.MachineID) (machinesapi.Machine, error) {
	return machinesapi.Machine{Summary: machinesapi.Summary{ID: "148e21ea1d5301", State: bourse.StateStarted, InstanceID: "01JD3V7K7Y5C5ZQ7W1R2M3N4P6"}}, nil
}

func (o *oneMachine) Acquire(context.Context, bourse.MachineID, machinesapi.LeaseRequest, string) (machinesapi.Lease, error) {
	return machinesapi.Lease{}, nil
}

func (o *oneMachine) Release(context.Context, bourse.MachineID, string) error { return nil }

func (o *oneMachine) Cordon(ctx context.Context, _ bourse.MachineID, cordoned bool, _ string) error {
	return o.cordon(ctx, cordoned)
}

func (o *oneMachine) Destroy(context.Context, bourse.MachineID, string) error { return nil }

func (o *oneMachine) Logs(_ context.Context, _ bourse.MachineID, _ machinesapi.LogQuery, line func(machinesapi.LogLine) error) error {
	return line(machinesapi.LogLine{Text: "its last words"})
}

func (o *oneMachine) Rows(ctx context.Context, _ func(run.Row)) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (o *oneMachine) SetRelease(_ context.Context, _ release.ID, status release.Status, _ run.Note) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.statuses = append(o.statuses, status)
	return nil
}

// cordons returns a plan with two steps, which both cordon the machine.
func cordons() *deploy.Plan {
	step := deploy.Step{Do: deploy.CordonMachine{}, Machine: "148e21ea1d5301", Name: "quiet-river-1234", Region: "gru", Why: "a test"}
	second := step
	second.ID, second.After = 1, []int{0}
	return &deploy.Plan{App: "shop", Steps: []deploy.Step{step, second}}
}

// watched records the output of a command. It closes noted when the output reports an
// interrupt.
type watched struct {
	bytes.Buffer
	noted chan struct{}
}

func (w *watched) Write(p []byte) (int, error) { // not called concurrently, because Progress holds a lock
	if bytes.Contains(p, []byte("interrupted: ")) {
		close(w.noted)
	}
	return w.Buffer.Write(p)
}

// execute executes a plan and returns the command's output.
func execute(ctx context.Context, t *testing.T, plan *deploy.Plan, said *watched, api run.API, signals <-chan os.Signal, keep bool) (out, errs string, err error) {
	t.Helper()
	s := &cli.Shell{Env: cli.Env{Now: time.Now}}
	var outs *bytes.Buffer
	s.Out, outs = clitest.Buffer("")
	s.Err = cli.Stream{ReadWriter: said}
	c := Executor{
		Shell: s, API: api, Title: "release v4 of shop", Resume: []string{"bourse deploy --resume", "bourse rollback"}, Signals: signals,
		Options: run.Options{Release: "01JD3V7K7Y5C5ZQ7W1R2M3N4P5", KeepOnFailure: keep},
	}
	_, err = c.Execute(ctx, plan)
	return outs.String(), said.String(), err
}

// TestSummaryCountsUnchangedMachines checks that a release's summary counts machines that were left unchanged because
// their workers do not answer.
func TestSummaryCountsUnchangedMachines(t *testing.T) {
	t.Parallel()
	p := cordons()
	p.Seen = map[bourse.MachineID]deploy.Seen{"148e21ea1d5301": {}, "148e21ea1d5302": {Lost: true}}
	if got := summary(p); strings.Contains(got, "left") {
		t.Errorf("summary without a release: %q", got)
	}
	p.Release = "01JD3V7K7Y5C5ZQ7W1R2M3N4P5"
	if got, want := summary(p), "1 left unchanged, because their workers do not answer"; !strings.Contains(got, want) {
		t.Errorf("%q, want %q in it", got, want)
	}
}

func TestCarryWell(t *testing.T) {
	t.Parallel()
	api := &oneMachine{cordon: func(context.Context, bool) error { return nil }}
	out, errs, err := execute(t.Context(), t, cordons(), &watched{}, api, nil, false)
	if err != nil || !strings.HasPrefix(out, "release v4 of shop  complete  ") || !strings.Contains(errs, "quiet-river-1234: cordoned") {
		t.Errorf("%v\n%s\n%s", err, out, errs)
	}
}

// TestExecuteReportsRemainingVolumes checks that the output ends with the remaining volumes and a command that destroys
// them.
func TestExecuteReportsRemainingVolumes(t *testing.T) {
	t.Parallel()
	p := &deploy.Plan{App: "shop", Steps: []deploy.Step{{Do: deploy.DestroyMachine{Volumes: []bourse.VolumeID{"vol_1", "vol_2"}}, Machine: "148e21ea1d5301"}}}
	out, _, err := execute(t.Context(), t, p, &watched{}, &oneMachine{}, nil, false)
	if want := "\n2 volumes are left, with their data; to remove them: bourse volume destroy -a shop vol_1 vol_2\n"; err != nil || !strings.HasSuffix(out, want) {
		t.Errorf("%v\n%s\nwant %q at its end", err, out, want)
	}
}

// TestExecuteFailingPlan checks that all changes are undone after a failure, unless they are to be kept, and that the
// error reports this and suggests what to do next.
func TestExecuteFailingPlan(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		times := 0
		api := &oneMachine{cordon: func(_ context.Context, cordoned bool) error {
			if times++; times == 2 && cordoned {
				return bourse.Errorf(bourse.CodeFailedPrecondition, "it will not")
			}
			return nil
		}}
		_, errs, err := execute(t.Context(), t, cordons(), &watched{}, api, nil, keep)
		want, hint := "everything is as it was before", "bourse machine logs -a shop 148e21ea1d5301"
		if keep {
			want, hint = "is incomplete", "bourse deploy --resume"
		}
		if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), want) || !strings.Contains(strings.Join(cli.Hints(err), "\n"), hint) {
			t.Errorf("keep %v: %v, hints %q", keep, err, cli.Hints(err))
		}
		if !strings.Contains(errs, "failed (cordoning): ") || strings.Contains(errs, "undone (uncordoned)") == keep {
			t.Errorf("keep %v:\n%s", keep, errs)
		}
	}
}

// TestInterrupts checks that the first interrupt undoes the changes and that a second one cancels the request in
// progress. The output must explain how to continue.
func TestInterrupts(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"once": false, "twice": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancelCause(t.Context())
			signals := make(chan os.Signal)
			said := &watched{noted: make(chan struct{})}
			var times atomic.Int64
			api := &oneMachine{cordon: func(ctx context.Context, _ bool) error {
				if times.Add(1) != 2 {
					return nil
				}
				signals <- os.Interrupt
				interrupt(errors.New("interrupt signal received"))
				<-said.noted
				if again {
					<-time.After(2 * interruptGap) // two interrupts in less time count as one
					signals <- os.Interrupt
					<-ctx.Done() // the second interrupt cancels this request
				}
				return bourse.Errorf(bourse.CodeCanceled, "the request was canceled")
			}}
			_, errs, err := execute(ctx, t, cordons(), said, api, signals, false)
			interrupted, ok := errors.AsType[cli.Interrupted](err)
			if !ok || !strings.Contains(string(interrupted), "release v4 of shop was interrupted: ") {
				t.Errorf("%v", err)
			}
			if !strings.Contains(errs, "interrupted: undoing the changes; press Ctrl-C again to stop and leave the rest as it is") || !strings.Contains(errs, "bourse deploy --resume  or  bourse rollback") {
				t.Errorf("%s", errs)
			}
			if !again && (!strings.Contains(string(interrupted), "everything is as it was before") || !strings.Contains(errs, "undone (uncordoned)")) {
				t.Errorf("%v\n%s", err, errs)
			}
		})
	}
}
