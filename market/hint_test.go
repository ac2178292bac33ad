package market_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// hints is a cluster's directory with wrong contents: the free amounts are replaced, some members
// are missing, and some listed ones left long ago.
type hints struct {
	*Cluster
	free  func(bourse.WorkerID) bourse.Amounts
	omit  func(bourse.WorkerID) bool
	ghost int // number of listed members of each region that have left
}

func (h hints) Candidates(region bourse.Region) []bourse.Member {
	var out []bourse.Member
	for _, m := range h.Cluster.Candidates(region) {
		if h.omit != nil && h.omit(m.ID) {
			continue
		}
		m.Free = h.free(m.ID)
		out = append(out, m)
	}
	for i := range h.ghost {
		id := bourse.WorkerID(fmt.Sprintf("ghost-%s-%d", region, i))
		out = append(out, bourse.Member{ID: id, Role: bourse.RoleWorker, Region: region, Address: "gone:1", Free: h.free(id)})
	}
	return out
}

// All returns the same workers as Candidates, for all regions.
func (h hints) All() (here []bourse.Member, away []bourse.Absence) {
	for _, region := range h.Regions() {
		here = append(here, h.Candidates(region)...)
	}
	return here, nil
}

// drawFree draws the free amounts that a hint contains. There may be none, or they may be outdated
// or invalid.
func drawFree(t *rapid.T) func(bourse.WorkerID) bourse.Amounts {
	said := map[bourse.WorkerID]bourse.Amounts{}
	for i := range 12 {
		for _, id := range []bourse.WorkerID{
			bourse.WorkerID(fmt.Sprintf("w%d", i)), bourse.WorkerID(fmt.Sprintf("ghost-gru-%d", i)),
		} {
			amount := rapid.SampledFrom([]int64{0, 1, 256, 1 << 20, math.MaxInt64, -1, math.MinInt64}).Draw(t, "amount")
			said[id] = rapid.SampledFrom([]bourse.Amounts{
				nil,
				{},
				{{Resource: bourse.ResourceMemory, Amount: amount}},
				{{Resource: "unheard-of", Amount: amount}},
				{{Resource: bourse.ResourceMemory, Amount: amount}, {Resource: bourse.ResourceMemory, Amount: 0}},
			}).Draw(t, "free")
		}
	}
	return func(id bourse.WorkerID) bourse.Amounts { return said[id] }
}

// TestInvariant8TheViewIsAHint checks that an order is filled if a listed worker has capacity, and
// refused otherwise. This must be true whatever free amounts the directory contains, and even if it
// lists departed workers or omits some. No worker may be oversold.
func TestInvariant8TheViewIsAHint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			specs := make([]Spec, rapid.IntRange(0, 10).Draw(t, "workers"))
			places := make([]int64, len(specs))
			for i := range specs {
				places[i] = rapid.Int64Range(0, 1).Draw(t, "room")
				specs[i] = Spec{ID: bourse.WorkerID(fmt.Sprintf("w%d", i)), Region: "gru", Total: room(places[i])}
			}
			c := newCluster(specs...)
			omitted := rapid.SliceOf(rapid.SampledFrom([]bourse.WorkerID{"w0", "w1", "w2", "w3"})).Draw(t, "omitted")
			dir := hints{
				Cluster: c, free: drawFree(t), ghost: rapid.IntRange(0, 4).Draw(t, "ghosts"),
				omit: func(id bourse.WorkerID) bool { return slices.Contains(omitted, id) },
			}
			x := broker(c, func(cfg *market.Config) {
				cfg.Directory, cfg.Sample = dir, rapid.IntRange(1, 4).Draw(t, "sample")
			})
			left := int64(0)
			for i, s := range specs {
				if !dir.omit(s.ID) {
					left += places[i]
				}
			}
			for range 12 {
				o := order("gru")
				o.HasChosenID, o.FirstTry = rapid.Bool().Draw(t, "named"), true
				a := place(t.Context(), x, o)
				if filled := a.err == nil; filled != (left > 0) {
					t.Fatalf("%d places remain: %v", left, a.err)
				}
				if a.err == nil {
					left--
				}
				if living := c.Living(o.ID); len(living) > 1 || (len(living) == 1) != (a.err == nil) {
					t.Fatalf("the broker returned %v; existing machines: %+v", a.err, living)
				}
			}
			for i, s := range specs {
				if used := c.Used(s.ID, bourse.ResourceMemory); used > places[i]*256 {
					t.Fatalf("worker %s has %d MiB of memory, of which %d are used", s.ID, places[i]*256, used)
				}
			}
		})
	})
}

// wanderer is a directory that lists the same worker in several regions, as may happen while a hint
// is changing.
type wanderer struct{ *Cluster }

func (w wanderer) Candidates(bourse.Region) []bourse.Member { return w.Cluster.Candidates("gru") }

// TestAWorkerGivenUpIsNotAskedAgain checks that a worker on which an order was canceled in one
// region is not claimed again in the next region.
func TestAWorkerGivenUpIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(1, room(2))
		stored := c.NewCancellations()
		x := broker(c, func(cfg *market.Config) { cfg.Directory, cfg.Cancellations = wanderer{c}, stored })
		loseFirst(c)
		o := order("gru", "mad")
		a := place(t.Context(), x, o)
		stored.Apply()
		if living := c.Living(o.ID); a.err == nil || len(living) != 0 || c.Calls(Claim) != 1 {
			t.Errorf("the broker returned %v after %d claims; existing machines: %+v", a.err, c.Calls(Claim), living)
		}
		c.Quiet()
	})
}
