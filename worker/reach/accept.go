package reach

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/admit"
)

// Between two attempts to connect a part of the time passes that has passed
// already: what comes up within a millisecond is not kept waiting for another,
// and what takes a minute costs no processor.
const (
	pausePart    = 256
	soonestAgain = 250 * time.Microsecond
	latestAgain  = 25 * time.Millisecond
	// lookAgain is how often it is seen whether the machine still runs.
	lookAgain = 20 * time.Millisecond
	// An attempt that gets no answer, since the machine's network has only just
	// come up, would be repeated by TCP after a second.
	attempt = 50 * time.Millisecond
)

// accepting returns when the machine accepts connections on the port that a
// service names: errMoved when it does not run any more.
func (r *Reach) accepting(ctx context.Context, m *bourse.Machine, service int) error {
	port, err := admit.PortOf(m, service)
	if err != nil {
		return err
	}
	begin := time.Now()
	looked := begin
	for {
		err := r.connect(ctx, m, port, attempt+time.Since(begin))
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case bourse.CodeOf(err) != bourse.CodeUnavailable:
			return err
		}
		if time.Since(looked) >= lookAgain {
			looked = time.Now()
			now, err := r.Machines.Machine(ctx, m.ID)
			if err != nil {
				return err
			}
			if now.State != bourse.StateStarted || now.Boot.Number != m.Boot.Number {
				return errMoved
			}
		}
		pause := time.NewTimer(min(max(time.Since(begin)/pausePart, soonestAgain), latestAgain))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
	}
}

// connect tries once.
func (r *Reach) connect(ctx context.Context, m *bourse.Machine, port int, limit time.Duration) error {
	once, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := r.Dial(once, m, port)
	if err == nil {
		_ = conn.Close() // nothing was sent
		return nil
	}
	if once.Err() != nil && ctx.Err() == nil {
		return bourse.Errorf(bourse.CodeUnavailable, "machine %s did not answer on port %d", m.ID, port)
	}
	return err
}
