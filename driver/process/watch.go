package process

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
)

// watchPause is the least time between two news of one log: a machine that
// writes without end is read in larger pieces.
const watchPause = 5 * time.Millisecond

// watch calls news at once and whenever there is more in a machine's log. It
// returns nil when the machine is destroyed.
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
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		gone, more := m.log.state() // before the news: what comes after it is news again
		if gone {
			return nil
		}
		news()
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
		pause.Reset(watchPause)
	}
}
