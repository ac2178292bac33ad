package logs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// watchPause is the least time between two news of one log: a machine that
// writes without end is read in larger pieces.
const watchPause = 5 * time.Millisecond

// Watch calls news at once and whenever there is more in the log. It returns
// nil when the log is destroyed.
func (m *Log) Watch(ctx context.Context, news func()) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		gone, more := m.state() // before the news: what comes after it is news again
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

// Follow returns a machine's lines until ctx ends or
// the machine is destroyed (no error). watch has to call news whenever there
// may be more in the files, at once to begin with, until ctx ends; it returns
// nil when the machine has been destroyed, and its error ends the following.
func (f Files) Follow(ctx context.Context, id bourse.MachineID, want driver.LogQuery,
	watch func(ctx context.Context, news func()) error, line func(driver.LogLine) error,
) error {
	watching, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	more := make(chan struct{}, 1) // room for one: news of more and news of much more are the same
	over := make(chan error, 1)
	wg.Go(func() {
		over <- watch(watching, func() {
			select {
			case more <- struct{}{}:
			default:
			}
		})
	})
	var r *reader
	for destroyed := false; ; {
		select {
		case <-more:
		case err := <-over:
			if err != nil {
				return err
			}
			destroyed = true // what is open can still be read
		case <-ctx.Done():
			return ctx.Err()
		}
		if r == nil { // not before the watch: nothing may fall in between
			var err error
			if r, err = f.open(id, want); err != nil {
				return err
			}
			defer r.close()
		}
		if err := r.read(line); err != nil {
			return err
		}
		if destroyed || r.vanished() {
			return nil
		}
	}
}

// vanished reports whether a log that was there has been removed, by a Destroy
// that no one told us about.
func (r *reader) vanished() bool {
	if r.number == 0 {
		return false
	}
	_, err := os.Stat(r.files.dir(r.id))
	return errors.Is(err, fs.ErrNotExist)
}
