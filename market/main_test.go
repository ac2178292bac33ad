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

// order returns an order for a machine with 256 MiB. Each region is a separate choice.
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

// room returns the capacity for n machines of the size that order requests.
func room(n int64) bourse.Amounts {
	return bourse.Amounts{{Resource: bourse.ResourceCPU, Amount: n * 1000}, {Resource: bourse.ResourceMemory, Amount: n * 256}}
}

// floor returns a cluster of n workers in gru, which are called w0, w1 and so on.
func floor(n int, total bourse.Amounts) *Cluster {
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = Spec{ID: bourse.WorkerID(fmt.Sprintf("w%d", i)), Region: "gru", Total: total}
	}
	return newCluster(specs...)
}

// broker returns an exchange for the workers of c. change may modify its config; nil: no changes.
func broker(c *Cluster, change func(*market.Config)) *market.Exchange {
	cfg := market.Config{Directory: c, Trader: c.Link(), Rand: rand.NewPCG(1, 2)}
	if change != nil {
		change(&cfg)
	}
	return market.New(cfg)
}

// running runs x.Run until the returned function is called.
func running(ctx context.Context, x *market.Exchange) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = x.Run(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// told is what a caller has received for an order.
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

// fails fails the test unless err has the code want.
func fails(t testing.TB, err error, want bourse.Code) {
	t.Helper()
	if got := bourse.CodeOf(err); got != want {
		t.Fatalf("code %q, want %q; error: %v", got, want, err)
	}
}
