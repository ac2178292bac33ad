package tasks

import (
	"context"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// streamCold calls output when m's task has begun, with nil, and then with everything that
// its program writes to stdout. It does nothing if output is nil. finish must be called
// with the task's fill, or nil. When it returns, output has received each byte of the
// answer once.
func (t *Tasks) streamCold(ctx context.Context, m *bourse.Machine, output func([]byte)) (finish func(*bourse.Fill)) {
	if output == nil {
		return func(*bourse.Fill) {}
	}
	output(nil)
	ctx, stop := context.WithCancel(ctx)
	sent := 0
	var following sync.WaitGroup
	following.Go(func() {
		// If the log ends early, for whatever reason, finish sends the rest.
		_ = t.machines.Logs(ctx, m, driver.LogQuery{Follow: true}, func(l driver.LogLine) error {
			part := stdoutOf(l)
			if sent+len(part) > bourse.MaxAnswer {
				return errTooMuch
			}
			if len(part) > 0 {
				output(part)
				sent += len(part)
			}
			return nil
		})
	})
	return func(fill *bourse.Fill) {
		stop()
		following.Wait()
		if fill != nil && len(fill.Task.Answer) > sent {
			output(fill.Task.Answer[sent:])
		}
	}
}

// stdoutOf returns the bytes that a program wrote to stdout for a line of its log.
func stdoutOf(l driver.LogLine) []byte {
	switch {
	case l.Stream != "stdout":
		return nil
	case l.Partial:
		return []byte(l.Text)
	}
	return append([]byte(l.Text), '\n')
}
