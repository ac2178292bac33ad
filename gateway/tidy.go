package gateway

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
)

// tidyParts is the number of times that Run calls tidy during each period of Config.Keep.
const tidyParts = 10

// Run destroys each submitted job once Config.Keep has passed since the job ended. It returns when ctx is done.
func (g *Gateway) Run(ctx context.Context) error {
	look := time.NewTicker(g.cfg.Keep / tidyParts)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		if err := g.tidy(ctx, time.Now().Add(-g.cfg.Keep)); err != nil && ctx.Err() == nil {
			g.cfg.Log.Warn("destroy ended jobs failed", "err", err)
		}
	}
}

// tidy destroys the submitted jobs that have ended and have not changed since the given time.
func (g *Gateway) tidy(ctx context.Context, before time.Time) error {
	old, err := g.cfg.Machines.Machines(ctx, nil, func(m *bourse.Machine) bool {
		return submitted(m) && hasEnded(m) && m.UpdatedAt.Before(before)
	})
	if err != nil {
		return err
	}
	for _, m := range old {
		err := g.cfg.Machines.Destroy(ctx, m.ID)
		if code := bourse.CodeOf(err); err != nil && code != bourse.CodeNotFound && code != bourse.CodeFailedPrecondition {
			return err
		}
	}
	return nil
}
