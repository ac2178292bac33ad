package market

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Limits for asking workers about an image. The limits are necessary because each of these
// workers sends a request to the image's registry.
const (
	pullableWorkers = 16
	pullableTimeout = 10 * time.Second
)

// asksAboutImage reports whether the exchange asks the best workers if they can pull the order's image. They are
// asked before a quote is returned, because the quote predicts the result of a claim, which would pull the image.
// They are also asked before a volume is placed, because the volume cannot move and its worker will have to run the
// image of the machine that mounts it.
func (t *trade) asksAboutImage() bool {
	return (t.quoteOnly || t.order.Kind() == bourse.KindVolume) && t.order.Config.Image != "" && t.order.Config.ImageKind() == bourse.RegistryImage
}

// pullable returns the ranking without the workers that cannot pull the order's image, and records
// their refusals in the same way as refused claims. It asks only the top-ranked workers (at most
// pullableWorkers), and keeps all others.
func (t *trade) pullable(ctx context.Context, members []bourse.Member, ranked []Ranked) []Ranked {
	if !t.asksAboutImage() {
		return ranked
	}
	ctx, cancel := context.WithTimeout(ctx, pullableTimeout)
	defer cancel()
	refusals := make([]*bourse.Refusal, min(len(ranked), pullableWorkers))
	var wg sync.WaitGroup
	for i := range refusals {
		wg.Go(func() {
			m := &members[ranked[i].Quote]
			if r := t.exchange.cfg.Trader.Pullable(ctx, *m, t.order.App.Org, t.order.Config.Image); r != nil {
				refusals[i] = sanitize(r, m)
			}
		})
	}
	wg.Wait()
	out := make([]Ranked, 0, len(ranked))
	round := t.currentRound()
	for i, r := range ranked {
		if i >= len(refusals) || refusals[i] == nil {
			out = append(out, r)
			continue
		}
		t.refusals.claimed(*refusals[i], t.order)
		if len(round.Refusals) < bourse.MaxRecorded {
			round.Refusals = append(round.Refusals, *refusals[i])
		}
		worker := refusals[i].Worker
		round.Ranked = slices.DeleteFunc(round.Ranked, func(r bourse.Ranking) bool { return r.Worker == worker })
	}
	return out
}
