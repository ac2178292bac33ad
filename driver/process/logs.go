package process

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Logs implements driver.Driver. The daemon reads the log files itself; the supervisor only notifies it of new lines.
// If the machine is unknown, Logs behaves as if its log were empty.
func (d *Driver) Logs(ctx context.Context, id bourse.MachineID, want driver.LogQuery, line func(driver.LogLine) error) error {
	if err := id.Validate(); err != nil {
		return err
	}
	give := func(l driver.LogLine) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return line(l)
	}
	if !want.Follow {
		return d.layout.logs().Read(id, want, give)
	}
	return d.layout.logs().Follow(ctx, id, want, func(ctx context.Context, news func()) error {
		return d.watch(ctx, id, news)
	}, give)
}

// watch asks the supervisor to report new lines in a log, and calls news for each report. If the supervisor is
// replaced, watch asks the new supervisor. It returns nil when the machine is destroyed.
func (d *Driver) watch(ctx context.Context, id bourse.MachineID, news func()) error {
	tell := func(r *reply) {
		if r.More {
			news()
		}
	}
	for {
		d.mu.Lock()
		up := d.linked
		d.mu.Unlock()
		select {
		case <-up:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ctx.Done():
			return errLinkEnded(context.Cause(d.ctx))
		}
		if err := d.call(ctx, &request{Op: opWatch, Machine: id}, tell); err == nil {
			return nil
		}
		pause := time.NewTimer(minRetryDelay)
		select {
		case <-pause.C:
		case <-ctx.Done():
		case <-d.ctx.Done():
		}
		pause.Stop()
	}
}

// watch is the supervisor's part of Driver.watch. It calls news immediately, and again whenever there are new
// lines in a machine's log. It returns nil when the machine is destroyed.
func (s *supervisor) watch(ctx context.Context, id bourse.MachineID, news func()) error {
	if err := id.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	m := s.machineLocked(id)
	m.watchers++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		m.watchers--
		s.dropLocked(id)
	}()
	return m.log.Watch(ctx, news)
}
