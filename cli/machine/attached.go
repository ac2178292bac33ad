package machine

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// ended are the states of a machine whose program has ended for good.
var ended = []string{string(bourse.StateStopped), string(bourse.StateFailed), string(bourse.StateDestroyed)}

// attached shows what the program of a machine that was just placed writes,
// until it has ended for good, and ends as it did. With remove the machine is
// destroyed then, by us: its worker would destroy it with its last lines.
func attached(ctx context.Context, s *cli.Shell, app string, id bourse.MachineID, remove bool) error {
	err := watchOutput(ctx, s, app, id)
	if err == nil {
		err = programsEnd(ctx, s, app, id)
	}
	interrupted := ctx.Err() != nil
	if interrupted && !remove {
		return cli.Interrupted("interrupted; the machine goes on: bourse machine logs -f" + appFlag(bourse.AppName(app)) + " " + string(id))
	}
	if !remove {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestWait)
	defer cancel()
	switch gone := s.Client().Destroy(ctx, bourse.AppName(app), id, machinesapi.DestroyMachine{Force: true}, ""); {
	case gone != nil && bourse.CodeOf(gone) != bourse.CodeNotFound:
		return cli.Hint(gone, "bourse machine destroy --force"+appFlag(bourse.AppName(app))+" "+string(id))
	case interrupted:
		return cli.Interrupted("interrupted; the machine was destroyed")
	}
	return err
}

// watchOutput prints what a machine's program writes until it has ended.
func watchOutput(ctx context.Context, s *cli.Shell, app string, id bourse.MachineID) error {
	l := &logs{shell: s, app: app, follow: true, print: logPrinter(s, false)}
	give := func(x machinesapi.LogLine) error {
		l.want.After = x.Position // the follower's: it has ended before this is read
		return l.print(logLine{LogLine: x})
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- l.followOne(following, id, machinesapi.LogQuery{}, give) }()
	err := untilEnded(ctx, s, app, id)
	stop()
	if failed := <-done; failed != nil && following.Err() == nil {
		return failed
	}
	if err != nil || ctx.Err() != nil {
		return err
	}
	return s.Client().Logs(ctx, bourse.AppName(app), id, l.want, give) // the last lines
}

// untilEnded waits until a machine's program has ended for good.
func untilEnded(ctx context.Context, s *cli.Shell, app string, id bourse.MachineID) error {
	var backoff cli.Backoff
	for {
		_, err := s.Client().Wait(ctx, bourse.AppName(app), id, machinesapi.WaitMachine{States: ended, Timeout: bourse.Duration(longestWait)})
		switch {
		case err == nil, ctx.Err() != nil, bourse.CodeOf(err) == bourse.CodeNotFound:
			return ctx.Err()
		case bourse.CodeOf(err) == bourse.CodeTimeout && !cli.Passing(err):
			continue
		case !cli.Passing(err):
			return about(err, app, id)
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}

// programsEnd returns how a machine's program has ended, as our own end.
func programsEnd(ctx context.Context, s *cli.Shell, app string, id bourse.MachineID) error {
	m, err := s.Client().Machine(ctx, bourse.AppName(app), id)
	if err != nil {
		return about(err, app, id)
	}
	e := m.Exit
	switch {
	case e == nil:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s, and how its program ended is not known", id, m.State)
	case e.Error != "":
		return bourse.Errorf(bourse.CodeFailedPrecondition, "%s", e.Error)
	case e.OOMKilled:
		s.Note("killed: out of memory")
	}
	return exitStatus(&bourse.Exit{Code: e.ExitCode})
}
