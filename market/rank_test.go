package market_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// quote returns a willing quote from a worker on which the given amounts are in use.
func quote(id string, usedCPU, usedMemory int64) bourse.Quote {
	return bourse.Quote{
		Worker: bourse.WorkerID(id), Region: "gru",
		Takes: bourse.Amounts{{Resource: bourse.ResourceCPU, Amount: 1000}, {Resource: bourse.ResourceMemory, Amount: 256}},
		Accounts: []bourse.Account{
			{Resource: bourse.ResourceCPU, Total: 100_000, Used: usedCPU},
			{Resource: bourse.ResourceMemory, Total: 100_000, Used: usedMemory},
		},
	}
}

func with(q bourse.Quote, change func(*bourse.Quote)) bourse.Quote {
	change(&q)
	return q
}

func rank(o *bourse.Order, quotes []bourse.Quote, curves *market.Curves, seed uint64) []bourse.WorkerID {
	var out []bourse.WorkerID
	for _, r := range market.Rank(o, quotes, curves, "b", rand.New(rand.NewPCG(seed, 0)), nil) {
		out = append(out, quotes[r.Quote].Worker)
	}
	return out
}

// withoutPosition returns the default curves without the one that distinguishes workers by their names.
func withoutPosition() *market.Curves {
	set := market.DefaultCurves()
	set.Position = market.Curve{}
	return &market.Curves{Default: set}
}

// TestRankByDefaultCurves checks each quantity except the position.
func TestRankByDefaultCurves(t *testing.T) {
	gpus := func(id string, usedGPUs, usedCPU int64) bourse.Quote {
		return with(quote(id, usedCPU, usedCPU), func(q *bourse.Quote) {
			q.Accounts = slices.Insert(q.Accounts, 1, bourse.Account{Resource: "gpu.a10", Total: 4, Used: usedGPUs})
		})
	}
	takesGPU := func(q bourse.Quote) bourse.Quote {
		return with(q, func(q *bourse.Quote) {
			q.Takes = append(q.Takes, bourse.Amount{Resource: "gpu.a10", Amount: 1}).Sorted()
		})
	}
	for name, test := range map[string]struct {
		quotes []bourse.Quote // the best quote first
		order  func(*bourse.Order)
	}{
		"but not past the knee": {
			quotes: []bourse.Quote{quote("knee", 88_000, 88_000), quote("brim", 99_000, 99_000)},
		},
		"few machines of the app": {
			quotes: []bourse.Quote{quote("none", 0, 0), with(quote("one", 10_000, 10_000), func(q *bourse.Quote) { q.AppMachines = 1 })},
		},
		"none of the app rather than a full worker": {
			quotes: []bourse.Quote{quote("none", 0, 0), with(quote("one", 85_000, 85_000), func(q *bourse.Quote) { q.AppMachines = 1 })},
		},
		"the worker that has the image": {
			quotes: []bourse.Quote{quote("has it", 0, 0), with(quote("must pull", 0, 0), func(q *bourse.Quote) { q.MissingBytes = 500 << 20 })},
		},
		"little load": {
			quotes: []bourse.Quote{quote("idle", 0, 0), with(quote("busy", 0, 0), func(q *bourse.Quote) { q.Load = 3 })},
		},
		"gpus keep the CPU that they need": {
			quotes: []bourse.Quote{quote("no gpus", 60_000, 60_000), gpus("half free", 2, 60_000), gpus("all free", 0, 60_000)},
		},
		"memory keeps the CPU that it needs": {
			quotes: []bourse.Quote{quote("even", 50_000, 50_000), quote("uneven", 70_000, 50_000), quote("more uneven", 50_000, 80_000)},
		},
		"gpus are taken where CPU is short": {
			quotes: []bourse.Quote{takesGPU(gpus("cpu left", 1, 20_000)), takesGPU(gpus("cpu short", 1, 70_000))},
			order:  func(o *bourse.Order) { o.Config.Guest.GPUs, o.Config.Guest.GPUKind = 1, "a10" },
		},
		"an invalid account of gpus does not hide others": {
			quotes: []bourse.Quote{
				quote("no gpus", 60_000, 60_000),
				with(gpus("all free", 0, 60_000), func(q *bourse.Quote) {
					q.Accounts = slices.Insert(q.Accounts, 1, bourse.Account{Resource: "gpu.a1", Total: 1, Used: 2})
				}),
			},
		},
		"invalid numbers score 0": {
			quotes: []bourse.Quote{
				quote("sane", 10_000, 10_000),
				with(quote("no accounts", 0, 0), func(q *bourse.Quote) { q.Accounts = nil }),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := order("gru")
			if test.order != nil {
				test.order(&o)
			}
			var want []bourse.WorkerID
			for _, q := range test.quotes {
				want = append(want, q.Worker)
			}
			slices.Reverse(test.quotes)
			if got := rank(&o, test.quotes, withoutPosition(), 1); !slices.Equal(got, want) {
				t.Errorf("ranked %v, want %v", got, want)
			}
		})
	}
}

// TestRankByPosition checks that similar workers are ranked in a sequence that does not depend on chance or on how full
// they are, and that other brokers begin at another point of the same sequence.
func TestRankByPosition(t *testing.T) {
	var quotes []bourse.Quote
	for i := range int64(6) {
		quotes = append(quotes, quote(fmt.Sprintf("w%d", i), 10_000*i, 10_000*i))
	}
	sequence := func(broker string, seed uint64) (out []bourse.WorkerID) {
		o := order("gru")
		for _, r := range market.Rank(&o, quotes, &market.Curves{}, broker, rand.New(rand.NewPCG(seed, 0)), nil) {
			out = append(out, quotes[r.Quote].Worker)
		}
		return out
	}
	want := sequence("b", 0)
	first := map[bourse.WorkerID]bool{}
	for i := range uint64(50) {
		if got := sequence("b", i); !slices.Equal(got, want) {
			t.Fatalf("broker b ranked %v, then %v", want, got)
		}
		got := sequence(fmt.Sprint("b", i), 0)
		first[got[0]] = true
		at := slices.Index(want, got[0])
		if rotated := slices.Concat(want[at:], want[:at]); !slices.Equal(got, rotated) {
			t.Errorf("broker b%d ranked %v, want %v", i, got, rotated)
		}
	}
	if len(first) < 4 {
		t.Errorf("50 brokers began only with %v", first)
	}
}

// TestSpreadComesFirst checks that a worker without machines of the app ranks first, even if its position, headroom and
// stranded resources are the worst. For further machines, the worker with fewer ones ranks first even if its position
// is the worst.
func TestSpreadComesFirst(t *testing.T) {
	o := order("gru")
	score := func(machines int, usedCPU, usedMemory int64, position bool) (sum float64) {
		q := quote("w", usedCPU, usedMemory)
		q.AppMachines = machines
		for _, p := range market.Explain(&o, &q, &market.Curves{}, "b") {
			if p.Name == "position" {
				p.Score = 0
				if position {
					p.Score = share(market.DefaultCurves().Position.Weight)
				}
			}
			sum += p.Score
		}
		return sum
	}
	for machines := range 10 {
		usedCPU, usedMemory := int64(0), int64(0)
		if machines == 0 {
			usedCPU, usedMemory = 99_000, 9000
		}
		if fewer, more := score(machines, usedCPU, usedMemory, false), score(machines+1, 0, 0, true); fewer <= more {
			t.Errorf("%d machines of the app: score %g, %d machines: %g", machines, fewer, machines+1, more)
		}
	}
}

// share returns the share of a curve with the given weight in the score of an order without GPUs.
func share(weight float64) float64 {
	set := market.DefaultCurves()
	total := set.Image.Weight + set.Spread.Weight + set.Load.Weight + set.Stranded.Weight + set.Position.Weight
	return weight / (total + set.Resources[bourse.ResourceCPU].Weight + set.Resources[bourse.ResourceMemory].Weight)
}

func TestRankByTheRegionsOwnCurves(t *testing.T) {
	emptiest, fullest := policy(t, `{"name":"p","base":"spread"}`).Curves, policy(t, `{"name":"p","base":"best-fit"}`).Curves
	curves := market.Curves{Default: fullest, Regions: map[bourse.Region]*market.CurveSet{"mad": emptiest}}
	for region, want := range map[bourse.Region]bourse.WorkerID{"gru": "full", "mad": "empty"} {
		quotes := []bourse.Quote{quote("empty", 0, 0), quote("full", 80_000, 80_000)}
		for i := range quotes {
			quotes[i].Region = region
		}
		o := order(region)
		if got := rank(&o, quotes, &curves, 1); got[0] != want {
			t.Errorf("%s: ranked %v, want %s first", region, got, want)
		}
	}
}

// TestRankBreaksTiesByChance checks that equal quotes are returned in random order, so that brokers
// do not all choose the same worker, and that the same seed leads to the same order.
func TestRankBreaksTiesByChance(t *testing.T) {
	quotes := []bourse.Quote{quote("a", 0, 0), quote("b", 0, 0), quote("c", 0, 0)}
	o := order("gru")
	seen := map[string]bool{}
	for seed := range uint64(200) {
		got := rank(&o, quotes, withoutPosition(), seed)
		seen[fmt.Sprint(got)] = true
		if again := rank(&o, quotes, withoutPosition(), seed); !slices.Equal(got, again) {
			t.Fatalf("seed %d gave %v, then %v", seed, got, again)
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d of 6 orders seen: %v", len(seen), seen)
	}
}

func anyQuote(sane bool) *rapid.Generator[bourse.Quote] {
	return rapid.Custom(func(t *rapid.T) bourse.Quote {
		q := quote(rapid.StringMatching(`[a-z]{1,4}`).Draw(t, "worker"), 0, 0)
		if rapid.IntRange(0, 3).Draw(t, "no") == 0 {
			q.Refusal = &bourse.Refusal{Reason: bourse.RefusedLabel}
		}
		if sane {
			q.Load = rapid.Float64Range(0, 10).Draw(t, "load")
			q.MissingBytes = rapid.Int64Range(0, 1<<40).Draw(t, "missing")
			q.AppMachines = rapid.IntRange(0, 50).Draw(t, "machines")
			for i := range q.Accounts {
				q.Accounts[i].Used = rapid.Int64Range(0, 99_000).Draw(t, "used")
			}
			return q
		}
		q.Load = rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1)})).Draw(t, "load")
		q.MissingBytes, q.AppMachines = rapid.Int64().Draw(t, "missing"), rapid.Int().Draw(t, "machines")
		for i := range q.Accounts {
			q.Accounts[i] = bourse.Account{Resource: q.Accounts[i].Resource, Total: rapid.Int64().Draw(t, "total"), Used: rapid.Int64().Draw(t, "used")}
			q.Takes[i].Amount = rapid.Int64().Draw(t, "takes")
		}
		q.Accounts = q.Accounts[:rapid.IntRange(0, 2).Draw(t, "accounts")]
		return q
	})
}

// TestRankIsAPermutationOfTheWilling checks that the ranking contains each willing quote once,
// sorted by score. Each score must be from 0 to 1 and the sum of its parts, whatever the quotes
// contain.
func TestRankIsAPermutationOfTheWilling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quotes := rapid.SliceOfN(anyQuote(rapid.Bool().Draw(t, "sane")), 0, 40).Draw(t, "quotes")
		o := order("gru")
		before := []market.Ranked{{Quote: 7, Score: -1}}
		got := market.Rank(&o, quotes, &market.Curves{}, "b", rand.New(rand.NewPCG(1, 1)), before)
		if got[0] != before[0] {
			t.Fatal("the previous contents of dst have changed")
		}
		got = got[1:]
		seen := map[int]bool{}
		for i, r := range got {
			if quotes[r.Quote].Refusal != nil || seen[r.Quote] {
				t.Fatalf("quote %d is ranked twice, or was a refusal", r.Quote)
			}
			seen[r.Quote] = true
			if i > 0 && r.Score > got[i-1].Score {
				t.Fatalf("score %g follows the lower score %g", r.Score, got[i-1].Score)
			}
			if !(r.Score >= 0 && r.Score <= 1+1e-9) {
				t.Fatalf("score %g", r.Score)
			}
			sum := 0.0
			for _, p := range market.Explain(&o, &quotes[r.Quote], &market.Curves{}, "b") {
				sum += p.Score
			}
			if math.Abs(sum-r.Score) > 1e-9 {
				t.Fatalf("score %g, parts add up to %g", r.Score, sum)
			}
		}
		for i, q := range quotes {
			if q.Refusal == nil && !seen[i] {
				t.Fatalf("quote %d is missing", i)
			}
		}
	})
}

// monotone draws a curve that never falls, or one that never rises if rising is not set.
func monotone(rising bool) *rapid.Generator[market.Curve] {
	return rapid.Custom(func(t *rapid.T) market.Curve {
		at := rapid.SliceOfNDistinct(rapid.Float64Range(0, 20), 1, 6, rapid.ID[float64]).Draw(t, "at")
		utility := rapid.SliceOfN(rapid.Float64Range(0, 1), len(at), len(at)).Draw(t, "utility")
		slices.Sort(at)
		slices.Sort(utility)
		if !rising {
			slices.Reverse(utility)
		}
		c := market.Curve{Weight: rapid.Float64Range(0.01, 9).Draw(t, "weight")}
		for i := range at {
			c.Points = append(c.Points, market.Point{At: at[i], Utility: utility[i]})
		}
		return c
	})
}

// TestRankIsMonotone checks that, if all curves are monotone, a quote that is at least as good as
// another one in every quantity never ranks below it.
func TestRankIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := &market.CurveSet{
			Resources: map[bourse.Resource]market.Curve{market.AnyResource: monotone(true).Draw(t, "resource")},
			Image:     monotone(false).Draw(t, "image"), Spread: monotone(false).Draw(t, "spread"), Load: monotone(false).Draw(t, "load"),
			PullRate: 1e6,
		}
		if err := set.Validate(); err != nil {
			t.Fatal(err)
		}
		worse := anyQuote(true).Draw(t, "worse")
		worse.Worker, worse.Refusal = "worse", nil
		better := worse
		better.Worker = "better"
		better.Accounts = slices.Clone(worse.Accounts)
		for i := range better.Accounts { // with these curves, a fuller worker is better
			a := &better.Accounts[i]
			a.Used += rapid.Int64Range(0, 99_000-a.Used).Draw(t, "more used")
		}
		better.Load = rapid.Float64Range(0, worse.Load).Draw(t, "less load")
		better.MissingBytes = rapid.Int64Range(0, worse.MissingBytes).Draw(t, "less missing")
		better.AppMachines = rapid.IntRange(0, worse.AppMachines).Draw(t, "fewer machines")
		o := order("gru")
		quotes := []bourse.Quote{worse, better}
		got := market.Rank(&o, quotes, &market.Curves{Default: set}, "b", rand.New(rand.NewPCG(1, 1)), nil)
		if quotes[got[0].Quote].Worker != "better" && got[0].Score != got[1].Score {
			t.Fatalf("the worse quote has score %g, the better one %g", got[0].Score, got[1].Score)
		}
	})
}

func TestRankAllocatesNothingPerQuote(t *testing.T) {
	o := order("gru")
	allocs := func(n int) float64 {
		quotes, rng := manyQuotes(n), rand.New(rand.NewPCG(1, 1))
		dst := make([]market.Ranked, 0, n)
		return testing.AllocsPerRun(5, func() { market.Rank(&o, quotes, &market.Curves{}, "b", rng, dst) })
	}
	if few, many := allocs(10), allocs(5000); few != many {
		t.Errorf("%g allocations for 10 quotes, %g for 5000", few, many)
	}
}

func manyQuotes(n int) []bourse.Quote {
	rng := rand.New(rand.NewPCG(5, 5))
	quotes := make([]bourse.Quote, n)
	for i := range quotes {
		quotes[i] = quote(fmt.Sprintf("w%d", i), rng.Int64N(99_000), rng.Int64N(99_000))
		quotes[i].Load, quotes[i].AppMachines = rng.Float64()*4, rng.IntN(20)
	}
	return quotes
}

func BenchmarkRank(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("quotes=%d", n), func(b *testing.B) {
			o, quotes, rng := order("gru"), manyQuotes(n), rand.New(rand.NewPCG(1, 1))
			curves := market.Curves{Default: market.DefaultCurves()}
			dst := make([]market.Ranked, 0, n)
			b.ReportAllocs()
			for b.Loop() {
				dst = market.Rank(&o, quotes, &curves, "b", rng, dst[:0])
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(time.Millisecond), "ms/ranking")
		})
	}
}
