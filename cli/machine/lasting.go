package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// minStartedTime is how long a machine must run before a command reports that it has started. A
// program that cannot run usually exits immediately.
const minStartedTime = time.Second

// confirmStarted waits for minStartedTime, and then checks that a machine has kept running. It
// returns the machine's state. before is the machine as it was before the command began to wait. If
// the program has exited since the command began to wait, confirmStarted returns an error, unless
// the machine will not be restarted and is in one of states, the states that the user is waiting
// for.
func confirmStarted(ctx context.Context, s *cli.Shell, before *machinesapi.Machine, states []string) (bourse.State, error) {
	timer := time.NewTimer(minStartedTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-timer.C:
	}
	app := string(before.App)
	m, err := s.Client().Machine(ctx, before.App, before.ID)
	if err != nil {
		return "", about(err, app, before.ID)
	}
	exit := lastExit(&m)
	if known := lastExit(before); exit == nil || known != nil && exit.ID == known.ID {
		return m.State, nil
	}
	wanted := slices.Contains(states, string(m.State)) || slices.Contains(states, machinesapi.StateSettled) && m.State.Settled()
	if !exit.Request.ExitEvent.Restarting && wanted {
		return m.State, nil
	}
	err = bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s did not keep running: %s", m.ID, describeExit(exit))
	return "", cli.Hint(err, "bourse machine logs"+appFlag(before.App)+" "+string(m.ID))
}

// lastExit returns a machine's latest exit event, or nil if there is none.
func lastExit(m *machinesapi.Machine) *machinesapi.Event {
	i := slices.IndexFunc(m.Events, func(e machinesapi.Event) bool { // events are sorted from newest to oldest
		return e.Type == bourse.EventExit && e.Request != nil && e.Request.ExitEvent != nil
	})
	if i < 0 {
		return nil
	}
	return &m.Events[i]
}

// describeExit describes how often a machine was restarted, and how its program ended.
func describeExit(e *machinesapi.Event) string {
	exit := e.Request.ExitEvent
	text := fmt.Sprintf("its program ended with exit code %d", exit.ExitCode)
	switch {
	case exit.Error != "":
		text = "its program ended: " + exit.Error
	case exit.OOMKilled:
		text = "its program was killed: out of memory"
	}
	switch n := e.Request.RestartCount; {
	case n == 1:
		text = "restarted once, " + text
	case n > 1:
		text = fmt.Sprintf("restarted %d times, %s", n, text)
	}
	return text
}
