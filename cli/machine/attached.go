package machine

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// endedStates lists the states of a machine whose program has ended and will not be
// restarted.
var endedStates = []string{string(bourse.StateStopped), string(bourse.StateFailed), string(bourse.StateDestroyed)}

// attached prints the output of a new machine until its program ends for good, and returns the
// program's exit status as an error. If remove is set, attached then destroys the machine. The
// worker must not destroy the machine automatically, because the last log lines would be
// deleted before attached has read them.
func attached(ctx context.Context, s *cli.Shell, app string, id bourse.MachineID, remove bool) error {
	err := watchOutput(ctx, s, app, id)
	if err == nil {
		err = exitOfProgram(ctx, s, app, id)
	}
	interrupted := ctx.Err() != nil
	if interrupted && !remove {
		return cli.Interrupted("interrupted; the machine keeps running: bourse machine logs -f" + appFlag(bourse.AppName(app)) + " " + string(id))
	}
	if !remove {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWait)
	defer cancel()
	switch gone := s.Client().Destroy(ctx, bourse.AppName(app), id, machinesapi.DestroyMachine{Force: true}, ""); {
	case gone != nil && bourse.CodeOf(gone) != bourse.CodeNotFound:
		return cli.Hint(gone, "bourse machine destroy --force"+appFlag(bourse.AppName(app))+" "+string(id))
	case interrupted:
		return cli.Interrupted("interrupted; the machine was destroyed")
	}
	return err
}

// watchOutput prints the output of a machine's program until the program ends for good.
func watchOutput(ctx context.Context, s *cli.Shell, app string, id bourse.MachineID) error {
	l := &logs{shell: s, app: app, follow: true, print: logPrinter(s, false)}
	emit := func(x machinesapi.LogLine) error {
		l.want.After = x.Position // no data race: l.want is read only after followOne, which calls emit, has returned
		return l.print(logLine{LogLine: x})
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- l.followOne(following, id, machinesapi.LogQuery{}, emit) }()
	err := waitForEnd(ctx, s, app, id)
	stop()
	if failed := <-done; failed != nil && following.Err() == nil {
		return failed
	}
	if err != nil || ctx.Err() != nil {
		return err
	}
	return s.Client().Logs(ctx, bourse.AppName(app), id, l.want, emit) // lines that were written after the follower stopped
}

// waitForEnd waits until a machine's program ends for good or ctx is done.
func waitForEnd(ctx context.Context, s *cli.Shell, app string, id bourse.MachineID) error {
	var backoff cli.Backoff
	for {
		_, err := s.Client().Wait(ctx, bourse.AppName(app), id, machinesapi.WaitMachine{States: endedStates, Timeout: bourse.Duration(maxWait)})
		switch {
		case err == nil, ctx.Err() != nil, bourse.CodeOf(err) == bourse.CodeNotFound:
			return ctx.Err()
		case bourse.CodeOf(err) == bourse.CodeTimeout && !cli.Temporary(err):
			continue
		case !cli.Temporary(err):
			return about(err, app, id)
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}

// exitOfProgram returns the exit status of a machine's program as an error.
func exitOfProgram(ctx context.Context, s *cli.Shell, app string, id bourse.MachineID) error {
	m, err := s.Client().Machine(ctx, bourse.AppName(app), id)
	if err != nil {
		return about(err, app, id)
	}
	e := m.Exit
	switch {
	case e == nil:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s, and its program's exit status is unknown", id, m.State)
	case e.Error != "":
		return bourse.Errorf(bourse.CodeFailedPrecondition, "%s", e.Error)
	case e.OOMKilled:
		s.Note("killed: out of memory")
	}
	return exitStatus(&bourse.Exit{Code: e.ExitCode})
}
