package drivertest

import (
	"context"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// memLog is a machine's output. The host's mutex guards it. more is closed and replaced when a
// line is added.
type memLog struct {
	lines []driver.LogLine
	more  chan struct{}
}

// add adds a line. If partial is true, the end of the line is missing.
func (l *memLog) add(stream, text string, partial bool) {
	l.lines = append(l.lines, driver.LogLine{At: time.Now(), Stream: stream, Text: text, Partial: partial, Position: strconv.Itoa(len(l.lines) + 1)})
	close(l.more)
	l.more = make(chan struct{})
}

// since returns the index of the first line that the query selects.
func (l *memLog) since(want driver.LogQuery) int {
	if had, err := strconv.Atoi(want.After); err == nil {
		return min(max(0, had), len(l.lines))
	}
	i := 0
	for i < len(l.lines) && l.lines[i].At.Before(want.Since) {
		i++
	}
	switch {
	case want.Tail > 0:
		return max(i, len(l.lines)-want.Tail)
	case want.Tail < 0:
		return len(l.lines)
	}
	return i
}

// Logs implements driver.Driver. An unknown machine has no lines yet; if want.Follow is set, Logs
// waits for its first lines.
func (d *MemoryDriver) Logs(ctx context.Context, id bourse.MachineID, want driver.LogQuery, line func(driver.LogLine) error) error {
	return d.do(ctx, Call{Op: "Logs", Machine: id}, func() error {
		m := d.host
		m.mu.Lock()
		if m.machines[id] == nil && !want.Follow {
			m.mu.Unlock()
			return nil
		}
		machine := m.machineLocked(id)
		next := machine.log.since(want)
		m.mu.Unlock()
		for {
			m.mu.Lock()
			lines, more := machine.log.lines[next:], machine.log.more
			m.mu.Unlock()
			for _, l := range lines {
				if err := line(l); err != nil {
					return err
				}
			}
			next += len(lines)
			if !want.Follow {
				return nil
			}
			select {
			case <-more:
			case <-machine.destroyed:
				return nil
			case <-d.cut:
				return errCut()
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}
