package machine

import (
	"context"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// logs prints the output of machines.
type logs struct {
	shell  *cli.Shell
	app    string
	want   machinesapi.LogQuery // for each machine
	follow bool

	mu    sync.Mutex // held while a line is printed
	print func(logLine) error
}

// one shows the output of one machine.
func (l *logs) one(ctx context.Context, id bourse.MachineID) error {
	give := func(x machinesapi.LogLine) error { return l.print(logLine{LogLine: x}) }
	if !l.follow {
		return l.shell.Client().Logs(ctx, bourse.AppName(l.app), id, l.want, give)
	}
	if _, err := l.shell.Client().Machine(ctx, bourse.AppName(l.app), id); err != nil {
		return err // no retries if the first request fails
	}
	return l.followOne(ctx, id, l.want, give)
}

// followOne passes each line of an existing machine to give exactly once, reconnecting
// as needed, until ctx is done or the machine is destroyed.
func (l *logs) followOne(ctx context.Context, id bourse.MachineID, want machinesapi.LogQuery, give func(machinesapi.LogLine) error) error {
	var backoff cli.Backoff
	var failed error // returned by give
	lost := false    // the connection is lost, and the user has been told
	for want.Follow = true; ; {
		err := l.shell.Client().Logs(ctx, bourse.AppName(l.app), id, want, func(x machinesapi.LogLine) error {
			want.After, lost, backoff = x.Position, false, cli.Backoff{}
			failed = give(x)
			return failed
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx) // the normal end of -f
		case failed != nil:
			return failed
		case err == nil && l.destroyed(ctx, id), bourse.CodeOf(err) == bourse.CodeNotFound:
			return nil
		case err != nil && !cli.Temporary(err):
			return err
		case err != nil && !lost:
			lost = true
			l.note("connection lost (" + cli.MessageOf(err) + "); reconnecting")
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}

// destroyed reports whether a stream ended because its machine was destroyed. A stream
// also ends when its broker stops.
func (l *logs) destroyed(ctx context.Context, id bourse.MachineID) bool {
	m, err := l.shell.Client().Machine(ctx, bourse.AppName(l.app), id)
	return bourse.CodeOf(err) == bourse.CodeNotFound || err == nil && (m.State == bourse.StateDestroyed || m.State == bourse.StateDestroying)
}

func (l *logs) note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shell.Note(cli.Clean(text))
}
