package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// awaitReady waits until a machine is ready, as defined by [expected.ready].
func (o operation) awaitReady(ctx context.Context, id bourse.MachineID, most time.Duration, smoke bool) error {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	want := expected{version: o.journal.version(id), smoke: smoke}
	why, told := "it was not seen", ""
	err := o.news.poll(limited, id, func() (bool, error) {
		m, err := o.readMachine(limited, id)
		if err != nil {
			return false, err
		}
		var ready bool
		ready, why, err = want.ready(&m, time.Now())
		if failing := failingChecks(&m); failing != told && err == nil && !ready { // ignore changes to a check's output
			if told = failing; told != "" {
				o.emit(Event{Step: o.i, State: Waiting, Machine: id, Text: why})
			}
		}
		if ready {
			o.journal.change(o.i, func(p *progress) { p.ready = versionOf(&m) })
		}
		return ready, err
	})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return bourse.Errorf(bourse.CodeTimeout, "not ready after %s: %s", most, why)
	}
	return err
}

// smokeDuration is how long a machine without checks must run before it counts as ready, if the step's Smoke field is
// set.
const smokeDuration = 2 * time.Second

// expected tracks a machine that should become ready.
type expected struct {
	version version // version that this run created; zero if there is none
	smoke   bool    // an early exit counts as a failure

	seen  bool      // the machine has been in state started
	since time.Time // time since which the machine has been in state started; zero if it is in another state
}

// ready reports whether a machine is ready: it has started, and its checks pass. If smoke is set and the machine has
// no checks, it must also have run for smokeDuration. If the machine is not ready, why describes what is missing. An
// error means that the machine can no longer become ready.
func (w *expected) ready(m *machinesapi.Machine, now time.Time) (ready bool, why string, err error) {
	if w.version.instance == "" {
		w.version = versionOf(m)
	}
	if m.InstanceID != w.version.instance {
		return false, "", errChanged(m.ID, w.version.instance, m.InstanceID)
	}
	early := func() error {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "it exited soon after its start%s", lastExit(m))
	}
	if w.smoke && m.Starts > w.version.starts && w.version.starts > 0 {
		return false, "", early()
	}
	switch m.State {
	case bourse.StateStarted:
	case bourse.StateFailed:
		return false, "", bourse.Errorf(bourse.CodeFailedPrecondition, "it could not be started%s", lastExit(m))
	case bourse.StateStopped, bourse.StateDestroying, bourse.StateDestroyed, bourse.StateSuspended, bourse.StateSuspending, bourse.StateStopping:
		if w.seen && m.Exit != nil && m.Exit.RequestedStop && m.Exit.ExitCode == 0 || m.State == bourse.StateSuspended {
			return true, "", nil // the machine was ready, and its worker stopped it because it was idle
		}
		return false, "", bourse.Errorf(bourse.CodeFailedPrecondition, "it is %s%s", m.State, lastExit(m))
	default:
		if w.smoke && w.seen {
			return false, "", early()
		}
		w.since = time.Time{}
		return false, "it is " + string(m.State) + lastExit(m), nil
	}
	if w.seen = true; w.since.IsZero() {
		w.since = now
	}
	if why := describeChecks(m); why != "" {
		return false, why, nil
	}
	if ran := now.Sub(w.since); w.smoke && len(m.Checks) == 0 && ran < smokeDuration {
		return false, fmt.Sprintf("it has run for %s", ran.Round(100*time.Millisecond)), nil
	}
	return true, "", nil
}

// describeChecks describes the checks that do not pass, or returns "" if all pass.
func describeChecks(m *machinesapi.Machine) string {
	var out []string
	for _, c := range m.Checks {
		if c.Status != bourse.CheckPassing {
			text := "check " + c.Name + " is " + string(c.Status)
			if c.Output != "" {
				text += ": " + bourse.Quoted(c.Output)
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// failingChecks returns the names of the checks that fail.
func failingChecks(m *machinesapi.Machine) string {
	var out []string
	for _, c := range m.Checks {
		if c.Status == bourse.CheckCritical {
			out = append(out, c.Name)
		}
	}
	return strings.Join(out, " ")
}

// latestExit returns the latest known exit of a machine's program, or nil if there is none.
func latestExit(m *machinesapi.Machine) *machinesapi.ExitEvent {
	exit := m.Exit
	for _, e := range m.Events { // events are sorted from newest to oldest
		if exit == nil && e.Request != nil {
			exit = e.Request.ExitEvent
		}
	}
	return exit
}

// lastExit describes the latest exit of a machine's program, or returns "" if there is
// none.
func lastExit(m *machinesapi.Machine) string {
	if exit := latestExit(m); exit != nil {
		return exitText(exit)
	}
	return ""
}

// exitText describes an exit. The text begins with a colon, so that it can be appended to other text.
func exitText(exit *machinesapi.ExitEvent) string {
	switch {
	case exit.OOMKilled:
		return ": its program was killed for lack of memory"
	case exit.Error != "":
		return ": " + exit.Error
	}
	return fmt.Sprintf(": its program exited with status %d", exit.ExitCode)
}
