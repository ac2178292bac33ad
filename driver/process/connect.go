package process

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/companion"
)

// Timeouts and retry intervals for connecting to a supervisor.
const (
	recoverTimeout = 30 * time.Second
	minRetryDelay  = 20 * time.Millisecond
	maxRetryDelay  = 2 * time.Second
)

// Recover implements driver.Driver: it connects to the running supervisor or starts one. It must not be called again
// after it has succeeded.
func (d *Driver) Recover(ctx context.Context) ([]driver.Status, error) {
	d.mu.Lock()
	again := d.begun
	d.begun = true
	d.mu.Unlock()
	if again {
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "recovery has already begun")
	}
	var err error
	if d.layout, err = newLayout(d.cfg.Dir); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	if err := d.connect(limited); err != nil {
		d.mu.Lock()
		d.begun = false
		d.mu.Unlock()
		return nil, err
	}
	return d.mirror.all(), nil
}

// connect tries to connect to the supervisor until it succeeds, fails with a permanent error, or ctx is done. Once it
// succeeds, a goroutine reads from the new link, and reconnects if the link breaks.
func (d *Driver) connect(ctx context.Context) error {
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		err := d.tryConnect(ctx)
		if err == nil || errors.Is(err, errVersion) || bourse.CodeOf(err) == bourse.CodeInvalid {
			return err
		}
		d.cfg.Log.Warn("connect to supervisor failed", "dir", d.layout.dir, "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), errLinkEnded(err))
		case <-d.ctx.Done():
			timer.Stop()
			return errLinkEnded(context.Cause(d.ctx))
		}
	}
}

var errVersion = errors.New("the running supervisor belongs to another release")

// tryConnect connects to the supervisor, starting one if necessary.
func (d *Driver) tryConnect(ctx context.Context) error {
	conn, err := companion.Dial(ctx, d.layout.run())
	if err != nil {
		if err := d.spawn(ctx); err != nil {
			return err
		}
		if conn, err = companion.Dial(ctx, d.layout.run()); err != nil {
			return err
		}
	}
	l := newLink(conn)
	d.work.Go(func() { d.keep(l) })
	if err := d.greet(ctx, l); err != nil {
		_ = conn.Close()
		return err
	}
	return nil
}

// greet sends the hello on a new link, updates the mirror, and then makes the link available to other goroutines.
func (d *Driver) greet(ctx context.Context, l *link) error {
	own := settings{LogBytes: d.cfg.LogBytes, LogFiles: d.cfg.LogFiles, NoLimits: d.cfg.Limits == LimitsOff}
	r, err := l.call(ctx, &request{Op: opHello, Hello: &hello{Version: protocolVersion, Settings: own}}, nil)
	switch {
	case err != nil:
		return err
	case r.Hello == nil:
		return bourse.Errorf(bourse.CodeUnavailable, "the supervisor sent an invalid answer to the hello")
	case r.Hello.Version != protocolVersion:
		return bourse.Errorf(bourse.CodeUnavailable,
			"%w: process %d uses protocol version %d, this daemon uses %d; start that release again, or stop its machines and then end the process with SIGTERM",
			errVersion, r.Hello.PID, r.Hello.Version, protocolVersion)
	}
	var list []driver.Status
	if _, err := l.call(ctx, &request{Op: opList}, func(r *reply) { list = append(list, r.List...) }); err != nil {
		return err
	}
	lost := bourse.Exit{Code: -1, Error: "supervisor lost: the program's exit status is unknown", At: time.Now().UTC()}
	unheld := d.mirror.replace(list, lost)
	for part := range slices.Chunk(unheld, listChunk) {
		if _, err := l.call(ctx, &request{Op: opHold, Hold: part}, nil); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return errLinkEnded(context.Cause(d.ctx))
	}
	if err := l.ended(); err != nil {
		return errLinkEnded(err) // the link broke before it was in use
	}
	d.link, d.labels, d.pid = l, r.Hello.Labels, r.Hello.PID
	close(d.linked)
	return nil
}

// keep reads from a link until the link breaks. If the driver was using the link, keep then reconnects, unless another
// daemon has taken over the supervisor.
func (d *Driver) keep(l *link) {
	err := l.read(func(r *reply) {
		if r.Status != nil {
			d.mirror.put(*r.Status)
		}
	})
	d.mu.Lock()
	used := d.link == l
	if used {
		d.link, d.linked = nil, make(chan struct{})
	}
	d.mu.Unlock()
	switch {
	case !used || d.ctx.Err() != nil:
		return
	case errors.Is(err, errReplaced):
		d.cfg.Log.Error("driver stopped", "dir", d.layout.dir, "err", err)
		d.cancel(err)
		return
	}
	d.cfg.Log.Error("supervisor lost", "dir", d.layout.dir, "err", err)
	if err := d.connect(d.ctx); err != nil && d.ctx.Err() == nil {
		d.cancel(err)
	}
}
