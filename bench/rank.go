package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// benchRank: ranking 10 000 quotes.
func benchRank(ctx context.Context, _ *Lab, out Figures) error {
	const quotes = 10_000
	rng := rand.New(rand.NewPCG(1, 2))
	order := bourse.Order{Config: bourse.Config{Image: bourse.ImageHost, Guest: &bourse.Guest{CPUKind: bourse.CPUShared, CPUs: 1, MemoryMB: 256}}}
	takes := order.Config.Guest.Takes(16)
	list := make([]bourse.Quote, quotes)
	for i := range list {
		list[i] = bourse.Quote{Worker: bourse.WorkerID(fmt.Sprintf("w%d", i)), Region: "gru", Takes: takes, AppMachines: rng.IntN(5), Load: rng.Float64()}
		for _, r := range []bourse.Resource{bourse.ResourceCPU, bourse.ResourceDisk, bourse.ResourceMemory} {
			total := 10_000 + rng.Int64N(90_000)
			list[i].Accounts = append(list[i].Accounts, bourse.Account{Resource: r, Total: total, Used: rng.Int64N(total - 5_000)})
		}
	}
	curves := &market.Curves{}
	dst := make([]market.Ranked, 0, quotes)
	var took samples
	for range 200 {
		if err := took.measure(func() error { dst = market.Rank(&order, list, curves, rng, dst[:0]); return ctx.Err() }); err != nil {
			return err
		}
	}
	if len(dst) != quotes {
		return fmt.Errorf("ranked %d of %d", len(dst), quotes)
	}
	out["rank_10k_ms"] = ms(took.quantile(0.5))
	out["rank_10k_p99_ms"] = ms(took.quantile(0.99))
	return nil
}
