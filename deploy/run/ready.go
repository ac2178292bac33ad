package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// awaitReady waits until a machine is ready: see [readiness].
func (r *runner) awaitReady(ctx context.Context, i int, id bourse.MachineID, most time.Duration, smoke bool) error {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	want := wanted{made: r.madeOf(id), smoke: smoke, runs: r.opts.Smoke}
	why, told := "it was not seen", ""
	err := r.news.until(limited, id, func() (bool, error) {
		m, err := r.look(limited, i, id)
		if err != nil {
			return false, err
		}
		var ready bool
		ready, why, err = want.readiness(&m, time.Now())
		if failing := critical(&m); failing != told && err == nil && !ready { // once, and not at each of its replies
			if told = failing; told != "" {
				r.emit(Event{Step: i, State: Waiting, Machine: id, Text: why})
			}
		}
		if ready {
			r.with(i, func(p *progress) { p.ready = made{m.InstanceID, m.Starts} })
		}
		return ready, err
	})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return bourse.Errorf(bourse.CodeTimeout, "not ready after %s: %s", most, why)
	}
	return err
}

// wanted is what has to be true of a machine that is ready.
type wanted struct {
	made  made          // by this run; zero when it did not make the version
	smoke bool          // an end is a failure
	runs  time.Duration // that one without checks has to run

	seen  bool      // it was started when it was looked at
	since time.Time // from then on, without an end
}

// readiness reports whether a machine is ready: it has started, its checks pass, and with smoke has
// run for a while where it has none. why says what is lacking; an error that it will not be.
func (w *wanted) readiness(m *machinesapi.Machine, now time.Time) (ready bool, why string, err error) {
	if w.made.instance == "" {
		w.made = made{m.InstanceID, m.Starts}
	}
	if m.InstanceID != w.made.instance {
		return false, "", errChanged(m.ID, w.made.instance, m.InstanceID)
	}
	if w.smoke && m.Starts > w.made.starts && w.made.starts > 0 {
		return false, "", bourse.Errorf(bourse.CodeFailedPrecondition, "it ended soon after its start%s", lastExit(m))
	}
	switch m.State {
	case bourse.StateStarted:
	case bourse.StateFailed:
		return false, "", bourse.Errorf(bourse.CodeFailedPrecondition, "it could not be started%s", lastExit(m))
	case bourse.StateStopped, bourse.StateDestroying, bourse.StateDestroyed, bourse.StateSuspended, bourse.StateSuspending, bourse.StateStopping:
		if w.seen && m.Exit != nil && m.Exit.RequestedStop && m.Exit.ExitCode == 0 || m.State == bourse.StateSuspended {
			return true, "", nil // no one uses it, and its worker has stopped it
		}
		return false, "", bourse.Errorf(bourse.CodeFailedPrecondition, "it is %s%s", m.State, lastExit(m))
	default:
		if w.smoke && w.seen {
			return false, "", bourse.Errorf(bourse.CodeFailedPrecondition, "it ended soon after its start%s", lastExit(m))
		}
		w.since = time.Time{}
		return false, "it is " + string(m.State) + lastExit(m), nil
	}
	if w.seen = true; w.since.IsZero() {
		w.since = now
	}
	if why := lackingChecks(m); why != "" {
		return false, why, nil
	}
	if ran := now.Sub(w.since); w.smoke && len(m.Checks) == 0 && ran < w.runs {
		return false, fmt.Sprintf("it has run for %s", ran.Round(100*time.Millisecond)), nil
	}
	return true, "", nil
}

// lackingChecks says which checks do not pass, "" when all do.
func lackingChecks(m *machinesapi.Machine) string {
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

// critical returns the names of the checks that fail.
func critical(m *machinesapi.Machine) string {
	var out []string
	for _, c := range m.Checks {
		if c.Status == bourse.CheckCritical {
			out = append(out, c.Name)
		}
	}
	return strings.Join(out, " ")
}

// lastExit says how a machine ended last, "" when nothing is known.
func lastExit(m *machinesapi.Machine) string {
	exit := m.Exit
	for _, e := range m.Events { // newest first
		if exit == nil && e.Request != nil {
			exit = e.Request.ExitEvent
		}
	}
	if exit == nil {
		return ""
	}
	return exitText(exit)
}

// exitText says how a program has ended, after a colon.
func exitText(exit *machinesapi.ExitEvent) string {
	switch {
	case exit.OOMKilled:
		return ": its program was killed for lack of memory"
	case exit.Error != "":
		return ": " + exit.Error
	}
	return fmt.Sprintf(": its program ended with status %d", exit.ExitCode)
}
