package market_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// order makes an order for 256 MiB in regions, one choice each.
func order(regions ...bourse.Region) bourse.Order {
	guest := bourse.Guest{CPUs: 1, MemoryMB: 256}.WithDefaults()
	o := bourse.Order{
		ID:     bourse.NewOrderID(),
		App:    bourse.App{Name: "shop"},
		Config: bourse.Config{Image: "host", Guest: &guest, Init: bourse.Init{Exec: []string{"true"}}},
	}
	for _, r := range regions {
		o.Regions = append(o.Regions, bourse.Choice{r})
	}
	return o
}

// room is capacity for n machines of order's size.
func room(n int64) bourse.Amounts {
	return bourse.Amounts{{Resource: bourse.ResourceCPU, Amount: n * 1000}, {Resource: bourse.ResourceMemory, Amount: n * 256}}
}

// floor makes a cluster of n workers w0 … in gru.
func floor(n int, total bourse.Amounts) *Cluster {
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = Spec{ID: bourse.WorkerID(fmt.Sprintf("w%d", i)), Region: "gru", Total: total}
	}
	return newCluster(specs...)
}

// broker makes an exchange on c; change may alter its config.
func broker(c *Cluster, change func(*market.Config)) *market.Exchange {
	cfg := market.Config{Directory: c, Trader: c.Link(), Rand: rand.NewPCG(1, 2)}
	if change != nil {
		change(&cfg)
	}
	return market.New(cfg)
}

// running keeps x's Run going until the returned function is called.
func running(ctx context.Context, x *market.Exchange) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = x.Run(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// told is what a caller received.
type told struct {
	order    bourse.Order
	fill     bourse.Fill
	decision bourse.Decision
	err      error
	took     time.Duration
}

func place(ctx context.Context, x *market.Exchange, o bourse.Order) told {
	began := time.Now()
	fill, decision, err := x.Place(ctx, o)
	return told{o, fill, decision, err, time.Since(began)}
}

// fails fails unless err has the code.
func fails(t testing.TB, err error, want bourse.Code) {
	t.Helper()
	if got := bourse.CodeOf(err); got != want {
		t.Fatalf("code %q, want %q; error: %v", got, want, err)
	}
}
