package tasks

import (
	"context"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// streamCold notifies output that m's task has begun, and what its program writes
// to stdout as it comes; nothing when output is nil. finish must be called with
// how it ended: then all of the answer has been told, each byte once.
func (t *Tasks) streamCold(ctx context.Context, m *bourse.Machine, output func([]byte)) (finish func(*bourse.Fill)) {
	if output == nil {
		return func(*bourse.Fill) {}
	}
	output(nil)
	ctx, stop := context.WithCancel(ctx)
	told := 0
	var following sync.WaitGroup
	following.Go(func() {
		// What is not in it, for whatever reason, comes at the end.
		_ = t.machines.Logs(ctx, m, driver.LogQuery{Follow: true}, func(l driver.LogLine) error {
			part := stdoutOf(l)
			if told+len(part) > bourse.MaxAnswer {
				return errTooMuch
			}
			if len(part) > 0 {
				output(part)
				told += len(part)
			}
			return nil
		})
	})
	return func(fill *bourse.Fill) {
		stop()
		following.Wait()
		if fill != nil && len(fill.Task.Answer) > told {
			output(fill.Task.Answer[told:])
		}
	}
}

// stdoutOf returns what a program wrote to stdout of a line of its log, byte for
// byte.
func stdoutOf(l driver.LogLine) []byte {
	switch {
	case l.Stream != "stdout":
		return nil
	case l.Partial:
		return []byte(l.Text)
	}
	return append([]byte(l.Text), '\n')
}
