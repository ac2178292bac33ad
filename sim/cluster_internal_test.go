package sim

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/market"
	"github.com/bourse-dev/bourse/worker"
)

const region = bourse.Region("gru")

// TestTheLabPlacesLikeACluster places the same orders in the lab and in a cluster of three workers,
// which consists of production code: the exchange, the connections, and the workers with their
// stores. Given the same seed, each order must be filled on the same worker, or refused, in both.
// TestLabPlacesLikeDaemons in package test does the same with daemons. This test is faster, and ranks
// cached quotes, which depend on timing there.
func TestTheLabPlacesLikeACluster(t *testing.T) {
	for seed := range int64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			trace, arrivals := Small(seed)
			curves := market.Curves{Default: market.DefaultCurves()}
			curves.Default.Load.Weight = 0 // this host's load does not belong to the experiment
			s := Strategy{candidates: sampled(market.DefaultSample), asks: true, curves: &curves, gpu: tightest}
			wants := Placements(trace, arrivals, &s, &Conditions{Brokers: 1}, seed)
			policies := market.NewPolicies(map[bourse.Region]*market.Policy{region: {Name: "idle", Curves: curves.Default}}, nil)
			c := newCluster(t, trace.Hosts, market.Config{Name: "b0", Policies: func() *market.Policies { return policies }})
			refused := 0
			for i := range arrivals {
				want := bourse.WorkerID("")
				if w := wants[i]; w >= 0 {
					want = c.members[w].ID
				} else {
					refused++
				}
				if got := c.place(t, &trace.Shapes[arrivals[i].Shape], i); got != want {
					t.Fatalf("order %d was filled on %q by the cluster, and on %q by the lab", i, got, want)
				}
			}
			if refused == 0 {
				t.Error("no order was refused, so the workers were never full")
			}
		})
	}
}

// cluster is a broker's exchange with three workers. It is the exchange's directory.
type cluster struct {
	exchange *market.Exchange
	members  []bourse.Member
}

// newCluster starts a worker for each host.
func newCluster(t *testing.T, hosts []Host, cfg market.Config) *cluster {
	t.Helper()
	c := &cluster{}
	for i := range hosts {
		c.members = append(c.members, startWorker(t, i, &hosts[i]))
	}
	f := direct.New(nil)
	t.Cleanup(f.Close)
	cfg.Directory, cfg.Trader = c, fabric.Trader{Fabric: f}
	cfg.QuoteTimeout = time.Minute // the host may be busy
	c.exchange = market.New(cfg)
	return c
}

// startWorker starts a worker whose programs run only in memory.
func startWorker(t *testing.T, index int, h *Host) bourse.Member {
	t.Helper()
	id := bourse.WorkerID(fmt.Sprintf("w%d", index))
	tag := bourse.WorkerTag(index + 1)
	log := slog.New(slog.DiscardHandler)
	w, err := worker.Open(worker.Config{
		Dir: t.TempDir(), ID: id, Region: region, Driver: drivertest.NewMemory().Driver(), Log: log,
		Tag:      func() bourse.WorkerTag { return tag },
		Capacity: worker.Capacity{CPUs: float64(h.CPU) / 1000, Memory: h.Memory, Disk: 1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- w.Run(ctx) }()
	go func() { ended <- direct.Serve(ctx, ln, direct.Handler(id, w.Handler()), nil, log) }()
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	<-w.Recovered()
	return bourse.Member{ID: id, Role: bourse.RoleWorker, Region: region, Tag: tag, Address: ln.Addr().String()}
}

func (c *cluster) Regions() []bourse.Region { return []bourse.Region{region} }

func (c *cluster) Candidates(bourse.Region) []bourse.Member {
	return slices.Clone(c.members)
}

func (c *cluster) All() ([]bourse.Member, []bourse.Absence) { return c.members, nil }

// place places an order for a new app, and returns the worker that fills it, or "" if the order is
// refused.
func (c *cluster) place(t *testing.T, s *Shape, index int) bourse.WorkerID {
	t.Helper()
	guest := &bourse.Guest{CPUKind: bourse.CPUPerformance, CPUs: int64(s.CPU) / 1000, MemoryMB: s.Memory}
	app := fmt.Sprintf("app-%d", index)
	o := bourse.Order{
		ID: bourse.NewOrderID(), App: bourse.App{Name: bourse.AppName(app), ID: app, Org: "personal"}, Regions: []bourse.Choice{{region}},
		Config:  bourse.Config{Image: bourse.ImageHost, Init: bourse.Init{Exec: []string{"run"}}, Guest: guest, Restart: &bourse.Restart{Policy: bourse.RestartNo}},
		Options: bourse.Options{Timeout: bourse.Duration(5 * time.Minute)},
	}
	if err := o.Config.Normalize(); err != nil {
		t.Fatal(err)
	}
	fill, d, err := c.exchange.Place(t.Context(), o)
	switch {
	case bourse.CodeOf(err) == bourse.CodeInsufficient:
		return ""
	case err != nil:
		t.Fatal(err, d.Refusals())
	}
	return fill.Machine.Worker
}
