package process

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

// Logs implements driver.Driver. The files are read by the daemon itself; the
// supervisor only tells when there is more. A machine that nobody has heard of
// has no lines yet.
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
	if want.Follow {
		return d.follow(ctx, id, want, give)
	}
	r, err := openLog(d.layout, id, want)
	if err != nil {
		return err
	}
	defer r.close()
	return r.read(give)
}

// follow reads a log until ctx ends or the machine is destroyed.
func (d *Driver) follow(ctx context.Context, id bourse.MachineID, want driver.LogQuery, give func(driver.LogLine) error) error {
	watching, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	more := make(chan struct{}, 1) // room for one: news of more and news of much more are the same
	gone := make(chan struct{})    // closed when the machine is destroyed
	wg.Go(func() { d.watch(watching, id, more, gone) })

	var r *logReader
	for destroyed := false; ; {
		select {
		case <-more:
		case <-gone:
			destroyed = true // what is open can still be read
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ctx.Done():
			return errLinkEnded(context.Cause(d.ctx))
		}
		if r == nil { // not before the watch: nothing may fall in between
			var err error
			if r, err = openLog(d.layout, id, want); err != nil {
				return err
			}
			defer r.close()
		}
		if err := r.read(give); err != nil {
			return err
		}
		if destroyed || r.vanished() {
			return nil
		}
	}
}

// vanished tells whether a log that was there has been removed, by a Destroy
// that fell between two supervisors.
func (r *logReader) vanished() bool {
	if r.number == 0 {
		return false
	}
	_, err := os.Stat(r.layout.logs(r.id))
	return errors.Is(err, fs.ErrNotExist)
}

// watch has the supervisor tell when there is more in a log, and outlives
// supervisors. It returns when the machine is destroyed or ctx or the driver
// ends.
func (d *Driver) watch(ctx context.Context, id bourse.MachineID, more, gone chan<- struct{}) {
	news := func(r *reply) {
		if r.More {
			select {
			case more <- struct{}{}:
			default:
			}
		}
	}
	for {
		d.mu.Lock()
		up := d.up
		d.mu.Unlock()
		select {
		case <-up:
		case <-ctx.Done():
			return
		case <-d.ctx.Done():
			return
		}
		if err := d.call(ctx, &request{Op: opWatch, Machine: id}, news); err == nil {
			close(gone)
			return
		}
		pause := time.NewTimer(retryFirst)
		select {
		case <-pause.C:
		case <-ctx.Done():
		case <-d.ctx.Done():
		}
		pause.Stop()
	}
}
