package market_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// seller is a Trader that fills orders for volumes.
type seller struct {
	market.Trader
	at    time.Time
	sold  map[bourse.WorkerID]bourse.Volume // volumes that have already filled the order, which quotes report
	other bool                              // fills contain the ID of another order
}

func (s seller) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	s.Trader.Ask(ctx, to, order, func(q bourse.Quote) {
		if v, ok := s.sold[q.Worker]; ok {
			v.Order = order.ID
			q.FilledVolume = &v
		}
		answer(q)
	})
}

func (s seller) Claim(_ context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	v := bourse.Volume{ID: bourse.NewVolumeID(to.Tag), Worker: to.ID, Region: to.Region, Order: claim.Order.ID, CreatedAt: s.at}
	if s.other {
		v.Order = bourse.NewOrderID()
	}
	return &bourse.Fill{Volume: &v}, nil, nil
}

func volumeOrder() bourse.Order {
	o := order("gru")
	o.Config = bourse.Config{}
	spec := bourse.VolumeOrder{Name: "data"}.WithDefaults()
	o.Volume = &spec
	return o
}

func TestAVolumeIsSoldLikeAMachine(t *testing.T) {
	c := floor(3, append(room(1), bourse.Amount{Resource: bourse.ResourceDisk, Amount: 1 << 20}))
	x := broker(c, func(cfg *market.Config) { cfg.Trader = seller{Trader: cfg.Trader} })
	a := place(t.Context(), x, volumeOrder())
	if a.err != nil {
		t.Fatal(a.err)
	}
	if v := a.fill.Volume; v == nil || a.decision.Volume != v.ID || a.decision.Worker != v.Worker || a.decision.Outcome != bourse.OutcomeFilled {
		t.Errorf("fill %+v, decision %+v", a.fill, a.decision)
	}
	for _, part := range a.decision.Rounds[0].Ranked[0].Parts {
		if part.Name == string(bourse.ResourceMemory) {
			t.Error("the ranking of a volume includes memory, which a volume does not use")
		}
	}
}

func TestAVolumeOfAnotherOrderIsUndone(t *testing.T) {
	c := floor(1, room(1))
	x := broker(c, func(cfg *market.Config) { cfg.Trader = seller{Trader: cfg.Trader, other: true} })
	if a := place(t.Context(), x, volumeOrder()); a.err == nil {
		t.Errorf("filled by a volume of another order: %+v", a.fill)
	}
}

// TestARepeatedOrderFindsItsVolume checks that a repeated order finds the oldest of its volumes,
// and that the others are undone.
func TestARepeatedOrderFindsItsVolume(t *testing.T) {
	c := floor(3, room(1))
	now := time.Now()
	sold := map[bourse.WorkerID]bourse.Volume{}
	for i, m := range c.Candidates("gru") {
		if i < 2 {
			sold[m.ID] = bourse.Volume{ID: bourse.NewVolumeID(m.Tag), Worker: m.ID, Region: m.Region, CreatedAt: now.Add(time.Duration(-i) * time.Second)}
		}
	}
	x := broker(c, func(cfg *market.Config) { cfg.Trader = seller{Trader: cfg.Trader, sold: sold} })
	o := volumeOrder()
	o.HasChosenID = true
	a := place(t.Context(), x, o)
	if a.err != nil || a.fill.Volume == nil || !a.fill.Repeated {
		t.Fatalf("%+v, %v", a.fill, a.err)
	}
	if oldest := now.Add(-time.Second); !a.fill.Volume.CreatedAt.Equal(oldest) {
		t.Errorf("the volume created at %s remains, want the oldest", a.fill.Volume.CreatedAt)
	}
}

func TestAMountedVolumePins(t *testing.T) {
	c := floor(5, room(1))
	x := broker(c, nil)
	all := c.Candidates("gru")
	for _, m := range all {
		o := order("gru")
		o.Config.Mounts = []bourse.Mount{{Volume: bourse.NewVolumeID(m.Tag), Path: "/data"}}
		if a := place(t.Context(), x, o); a.err != nil || a.fill.Machine.Worker != m.ID {
			t.Errorf("the volume is on %s, the machine on %s: %v", m.ID, a.fill.Machine.Worker, a.err)
		}
	}
	o := order("gru")
	o.Config.Mounts = []bourse.Mount{{Volume: bourse.NewVolumeID(0xabcdef), Path: "/data"}}
	a := place(t.Context(), x, o)
	fails(t, a.err, bourse.CodeInsufficient)
	if text := bourse.MessageOf(a.err); !strings.Contains(text, string(o.Config.Mounts[0].Volume)) {
		t.Errorf("%q does not name the volume", text)
	}
}
