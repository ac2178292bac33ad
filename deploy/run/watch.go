package run

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Interval at which a watched machine is read, and time limit for reading it once.
const (
	watchEvery   = 5 * time.Second // applies if the view reports no change
	watchTimeout = 5 * time.Second
)

// watches monitors machines after a step has found them ready. If such a machine crashes, that step fails. Each machine
// is monitored for at least Options.Watch. Until then, the run does not complete, and does not destroy the machine's
// predecessor. Monitoring ends before a later step starts, stops, restarts, updates or destroys the machine. It also
// ends before a later step destroys the replaced machine, because the replacement cannot be undone after that.
type watches struct {
	*executor
	graph graph
	group sync.WaitGroup

	mu       sync.Mutex
	ready    map[int]watch // watches by the step that found the machine ready
	final    []bool        // for each step, whether a step that depends on it has begun to destroy something permanently
	reported bool          // an event has reported that machines are being watched
	ended    bool
}

// watch monitors a single machine.
type watch struct {
	since  time.Time // time when the machine was found ready
	cancel context.CancelFunc
}

func newWatches(x *executor, g graph) *watches {
	return &watches{executor: x, graph: g, ready: map[int]watch{}, final: make([]bool, len(x.plan.Steps))}
}

// before must be called before a step begins. If the step destroys something, before waits until the machines of all
// preceding steps have been watched for long enough.
func (w *watches) before(ctx context.Context, i int) error {
	if !w.plan.Steps[i].Destroys() {
		return nil
	}
	before := w.graph.preceding(i)
	return w.await(ctx, func(step int) bool {
		_, found := slices.BinarySearch(before, step)
		return found
	})
}

// all waits until all machines have been watched for long enough.
func (w *watches) all(ctx context.Context) error {
	return w.await(ctx, func(int) bool { return true })
}

// await waits until the machines that were found ready by the chosen steps have been watched for long enough. It
// returns an error if ctx is done first, for example because a machine crashed.
func (w *watches) await(ctx context.Context, chosen func(step int) bool) error {
	var last time.Time
	w.mu.Lock()
	for step, one := range w.ready {
		if end := one.since.Add(w.opts.Watch); chosen(step) && end.After(last) {
			last = end
		}
	}
	left := time.Until(last)
	tell := left > 0 && !w.reported
	w.reported = w.reported || tell
	w.mu.Unlock()
	if left <= 0 {
		return nil
	}
	if tell {
		w.emit(Event{Step: WholeRun, State: Waiting, Text: "watching the machines for another " + left.Round(100*time.Millisecond).String()})
	}
	return sleep(ctx, left)
}

// cancelObsolete ends the watches that step i makes obsolete. It must be called before the step
// begins.
func (w *watches) cancelObsolete(i int) {
	s := &w.plan.Steps[i]
	switch s.Do.(type) {
	case deploy.UpdateMachine, deploy.RestartMachine, deploy.StopMachine, deploy.StartMachine, deploy.DestroyMachine, deploy.DestroyVolume:
	default:
		return
	}
	id := w.journal.machine(i)
	w.mu.Lock()
	defer w.mu.Unlock()
	for ready := range w.ready {
		if id != "" && w.journal.machine(ready) == id {
			w.cancel(ready)
		}
	}
	if s.Final() {
		for _, before := range append(w.graph.preceding(i), i) {
			w.final[before] = true
			w.cancel(before)
		}
	}
}

// cancel ends a watch, if it exists. The caller must hold mu.
func (w *watches) cancel(i int) {
	if one, there := w.ready[i]; there {
		one.cancel()
		delete(w.ready, i)
	}
}

// follow starts to watch the machine that a step has found ready.
func (w *watches) follow(ctx context.Context, i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.final[i] {
		return
	}
	at := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	w.ready[i] = watch{at, cancel}
	w.group.Go(func() {
		if err := w.crashed(ctx, i, at); err != nil {
			w.failStep(ctx, i, at, err)
		}
	})
}

// end ends all watches and waits for their goroutines.
func (w *watches) end() {
	w.mu.Lock()
	w.ended = true
	for i := range w.ready {
		w.cancel(i)
	}
	w.mu.Unlock()
	w.group.Wait()
}

// failStep makes a finished step fail, unless its watch has ended.
func (w *watches) failStep(ctx context.Context, i int, since time.Time, err error) {
	w.mu.Lock()
	if ctx.Err() != nil {
		w.mu.Unlock()
		return
	}
	e := w.failed(i, err, w.journal.get(i).took+time.Since(since))
	w.mu.Unlock()
	e.Evidence = w.evidence(i)
	w.emit(e)
}

// crashed reads a machine whenever it changes, and returns an error once its program has crashed. It returns nil when
// ctx is done.
func (w *watches) crashed(ctx context.Context, i int, since time.Time) error {
	id, ready := w.journal.machine(i), w.journal.get(i).ready
	for {
		changed, _ := w.news.next(id) // must precede reading the machine
		row, there, known := w.news.row(id)
		if !known || !there || row.State != bourse.StateStarted || row.Instance != ready.instance || row.Starts != ready.starts {
			var m machinesapi.Machine
			unread := w.requests.request(ctx, id.Tag(), watchTimeout, func(ctx context.Context) (err error) {
				m, err = w.api.Machine(ctx, id)
				return err
			})
			if how := describeCrash(&m, &ready); unread == nil && how != "" { // an unresponsive worker is not a crash
				return bourse.Errorf(bourse.CodeFailedPrecondition, "it crashed %s after it became ready%s", time.Since(since).Round(time.Second/10), how)
			}
		}
		timer := time.NewTimer(watchEvery)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the machine was watched for as long as requested
		}
	}
}

// describeCrash describes how a machine's program has failed since the machine became ready. It returns "" if the
// program has not failed. If the machine was stopped because it was idle, and then started again, describeCrash
// records the new start in ready.
func describeCrash(m *machinesapi.Machine, ready *version) string {
	if m.InstanceID != ready.instance {
		return ""
	}
	exit := m.Exit
	if exit == nil && m.Starts > ready.starts {
		exit = latestExit(m)
	}
	ready.starts = max(ready.starts, m.Starts)
	switch {
	case m.State == bourse.StateFailed && exit == nil:
		return fmt.Sprintf(": it is %s", m.State)
	case exit == nil || exit.RequestedStop || exit.ExitCode == 0 && exit.Error == "" && !exit.OOMKilled:
		return ""
	}
	return exitText(exit)
}
