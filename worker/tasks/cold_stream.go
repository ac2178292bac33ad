package tasks

import (
	"context"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// streamCold calls output with nil once m's task has begun, and then with the bytes that the task's program writes to
// stdout. It does nothing if output is nil. Once the task is finished, the caller must call finish with the Fill that
// answers the task's order, or with nil if there is none. By the time finish returns, output has received every byte of
// the answer exactly once.
func (t *Tasks) streamCold(ctx context.Context, m *bourse.Machine, output func([]byte)) (finish func(*bourse.Fill)) {
	if output == nil {
		return func(*bourse.Fill) {}
	}
	output(nil)
	ctx, stop := context.WithCancel(ctx)
	sent := 0
	var following sync.WaitGroup
	following.Go(func() {
		// If reading the log fails or stops early, finish sends the rest.
		_ = t.machines.Logs(ctx, m, driver.LogQuery{Follow: true}, func(l driver.LogLine) error {
			part := stdoutOf(l)
			if sent+len(part) > bourse.MaxAnswer {
				return errOutputTooLarge
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

// stdoutOf returns the bytes of a log line as the program wrote them to stdout. It returns nil if the line is from
// another stream.
func stdoutOf(l driver.LogLine) []byte {
	switch {
	case l.Stream != "stdout":
		return nil
	case l.Partial:
		return []byte(l.Text)
	}
	return append([]byte(l.Text), '\n')
}
