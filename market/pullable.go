package market

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Bounds of asking workers about an image: each asks its registry.
const (
	pullableWorkers = 16
	pullableWithin  = 10 * time.Second
)

// asksAboutImage reports whether the workers that would take the order are asked first
// whether they can pull its image. A quote says what a claim would meet, and a claim
// pulls. A volume stays on its worker, which has to run the image of the machine that
// is to mount it.
func (t *trade) asksAboutImage() bool {
	return (t.quoteOnly || t.order.Kind() == bourse.KindVolume) && t.order.Config.Image != "" && t.order.Config.ImageKind() == bourse.RegistryImage
}

// pullable returns the ranked workers without those that cannot pull the order's image,
// whose refusals count like those of claims. Only the best workers are asked; if all of them
// refuse, the others remain.
func (t *trade) pullable(ctx context.Context, members []bourse.Member, ranked []Ranked) []Ranked {
	if !t.asksAboutImage() {
		return ranked
	}
	ctx, cancel := context.WithTimeout(ctx, pullableWithin)
	defer cancel()
	refusals := make([]*bourse.Refusal, min(len(ranked), pullableWorkers))
	var wg sync.WaitGroup
	for i := range refusals {
		wg.Go(func() {
			m := &members[ranked[i].Quote]
			if r := t.x.cfg.Trader.Pullable(ctx, *m, t.order.App.Org, t.order.Config.Image); r != nil {
				refusals[i] = tidy(r, m)
			}
		})
	}
	wg.Wait()
	out := make([]Ranked, 0, len(ranked))
	round := t.present()
	for i, r := range ranked {
		if i >= len(refusals) || refusals[i] == nil {
			out = append(out, r)
			continue
		}
		t.noes.claimed(*refusals[i], t.order)
		if len(round.Refusals) < bourse.MaxRecorded {
			round.Refusals = append(round.Refusals, *refusals[i])
		}
		worker := refusals[i].Worker
		round.Ranked = slices.DeleteFunc(round.Ranked, func(r bourse.Ranking) bool { return r.Worker == worker })
	}
	return out
}
