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

// watchPause is the minimum time between two notifications about a log. If a machine writes continuously, followers
// therefore read its output in larger pieces.
const watchPause = 5 * time.Millisecond

// Watch calls news immediately, and again whenever there are new lines in the log. It returns nil when the log is
// destroyed.
func (m *Log) Watch(ctx context.Context, news func()) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		gone, more := m.state() // read before calling news, so that later writes cause another notification
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

// Follow calls line with a machine's lines until ctx is done. It returns nil if the machine is destroyed. Follow calls
// watch, which must call news immediately, and again whenever there may be new lines in the files. watch must return
// when ctx is done, and must return nil when the machine is destroyed. Follow returns any error from watch.
func (f Files) Follow(ctx context.Context, id bourse.MachineID, want driver.LogQuery,
	watch func(ctx context.Context, news func()) error, line func(driver.LogLine) error,
) error {
	watching, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	more := make(chan struct{}, 1) // capacity 1, so that notifications coalesce
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
			destroyed = true // the open files can still be read
		case <-ctx.Done():
			return ctx.Err()
		}
		if r == nil { // open the reader only after watch has called news, so that it does not miss lines
			var err error
			if r, err = f.open(id, want); err != nil {
				return err
			}
			defer r.close()
		}
		if err := r.read(line); err != nil {
			return err
		}
		if destroyed || r.isRemoved() {
			return nil
		}
	}
}

// isRemoved reports whether the log was removed after the reader had begun to read it, which can happen without a
// notification.
func (r *reader) isRemoved() bool {
	if r.number == 0 {
		return false
	}
	_, err := os.Stat(r.files.dir(r.id))
	return errors.Is(err, fs.ErrNotExist)
}
