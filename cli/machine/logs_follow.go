package machine

import (
	"context"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// logs is one invocation of the "logs" command.
type logs struct {
	shell  *cli.Shell
	app    string
	want   machinesapi.LogQuery // query for each machine's lines
	follow bool

	mu    sync.Mutex // held while a line is printed
	print func(logLine) error
}

// showOne shows the output of one machine.
func (l *logs) showOne(ctx context.Context, id bourse.MachineID) error {
	emit := func(x machinesapi.LogLine) error { return l.print(logLine{LogLine: x}) }
	if !l.follow {
		return l.shell.Client().Logs(ctx, bourse.AppName(l.app), id, l.want, emit)
	}
	if _, err := l.shell.Client().Machine(ctx, bourse.AppName(l.app), id); err != nil {
		return err // do not retry if the first request fails
	}
	return l.followOne(ctx, id, l.want, emit)
}

// followOne follows a machine's output and calls emit exactly once for each line. If the
// connection breaks, it reconnects. It returns nil once the machine is destroyed, and
// otherwise ctx's cause, an error from emit, or the API's error if a retry cannot help.
func (l *logs) followOne(ctx context.Context, id bourse.MachineID, want machinesapi.LogQuery, emit func(machinesapi.LogLine) error) error {
	var backoff cli.Backoff
	var failed error // error that emit returned
	lost := false    // whether the user has been notified that the connection is lost
	for want.Follow = true; ; {
		err := l.shell.Client().Logs(ctx, bourse.AppName(l.app), id, want, func(x machinesapi.LogLine) error {
			want.After, lost, backoff = x.Position, false, cli.Backoff{}
			failed = emit(x)
			return failed
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx) // with -f, this is the normal end
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

// destroyed reports whether a stream ended because the machine was destroyed, rather than
// because a broker stopped.
func (l *logs) destroyed(ctx context.Context, id bourse.MachineID) bool {
	m, err := l.shell.Client().Machine(ctx, bourse.AppName(l.app), id)
	return bourse.CodeOf(err) == bourse.CodeNotFound || err == nil && (m.State == bourse.StateDestroyed || m.State == bourse.StateDestroying)
}

func (l *logs) note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shell.Note(cli.Clean(text))
}
