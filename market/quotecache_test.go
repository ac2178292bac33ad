package market_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// standFor returns a function that configures the exchange to cache quotes for d.
func standFor(d time.Duration) func(*market.Config) {
	return func(cfg *market.Config) { cfg.QuoteTTL = d }
}

// stood returns the first round that was ranked with cached quotes, or nil if there is none.
func stood(d *bourse.Decision) *bourse.Round {
	for i := range d.Rounds {
		if d.Rounds[i].OldestQuote > 0 {
			return &d.Rounds[i]
		}
	}
	return nil
}

func TestAnOrderLikeTheLastIsNotAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(3, room(9))
		x := broker(c, nil)
		first := place(t.Context(), x, order("gru"))
		time.Sleep(700 * time.Millisecond)
		second := place(t.Context(), x, order("gru"))
		if first.err != nil || second.err != nil {
			t.Fatal(first.err, second.err)
		}
		if got := c.Calls(Ask); got != 3 {
			t.Errorf("%d asks, want 3, all for the first order", got)
		}
		if r := stood(&first.decision); r != nil {
			t.Errorf("the first order's round: %+v", r)
		}
		r := stood(&second.decision)
		if r == nil || r.OldestQuote != 700*time.Millisecond || r.Asked != 0 || r.Candidates != 3 || len(r.Ranked) != 3 || len(r.Claims) != 1 {
			t.Fatalf("recorded: %+v", second.decision.Rounds)
		}
		if kept, _ := c.Kept(second.order.ID); stood(&kept) == nil {
			t.Errorf("the worker has stored %+v", kept.Rounds)
		}
		if first.fill.Machine.Worker == second.fill.Machine.Worker {
			t.Error("the app's two machines are on one worker")
		}
	})
}

// scene has three workers, and a broker that knows two of them and has placed an order on one of
// these.
type scene struct {
	c      *Cluster
	x      *market.Exchange
	order  bourse.Order         // the order that is placed next; initially like the first one
	absent bourse.WorkerID      // worker that is not in the directory
	member func(*bourse.Member) // changes what the directory returns for w0; nil: nothing
}

func newScene(t *testing.T) *scene {
	s := &scene{c: floor(3, append(room(9), bourse.Amount{Resource: "slots", Amount: 9})), order: order("gru"), absent: "w2"}
	s.x = broker(s.c, func(cfg *market.Config) {
		cfg.Directory = directory{s.c, func(list []bourse.Member) []bourse.Member {
			if s.member != nil {
				s.member(&list[0])
			}
			return slices.DeleteFunc(list, func(m bourse.Member) bool { return m.ID == s.absent })
		}}
	})
	if a := place(t.Context(), s.x, order("gru")); a.err != nil {
		t.Fatal(a.err)
	}
	return s
}

// isAsked places the scene's order. It fails the test unless all workers were asked.
func (s *scene) isAsked(t *testing.T) {
	t.Helper()
	before := s.c.Calls(Ask)
	s.order.ID = bourse.NewOrderID()
	a := place(t.Context(), s.x, s.order)
	if asks := s.c.Calls(Ask) - before; a.err != nil || stood(&a.decision) != nil || asks < 2 {
		t.Errorf("%d asks: %v\n%+v", asks, a.err, a.decision.Rounds)
	}
}

// TestChangesAreAskedAbout checks that the workers are asked again if anything has changed since
// the previous order.
func TestChangesAreAskedAbout(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *scene){
		"the cached quotes have expired": func(*testing.T, *scene) { time.Sleep(time.Second + 1) },
		"a worker has a new address":     func(_ *testing.T, s *scene) { s.member = func(m *bourse.Member) { m.Address = "elsewhere:1" } },
		"a worker was reinstalled":       func(_ *testing.T, s *scene) { s.member = func(m *bourse.Member) { m.Tag += 100 } },
		"a worker is in another region":  func(_ *testing.T, s *scene) { s.member = func(m *bourse.Member) { m.Region = "mad" } },
		"a worker is new":                func(_ *testing.T, s *scene) { s.absent = "" },
		"a worker refused": func(t *testing.T, s *scene) {
			s.c.Tell("w0", &Lies{Quote: func(q *bourse.Quote) { q.Refusal = &bourse.Refusal{Reason: bourse.RefusedUnavailable} }})
			s.quote(t, "shop")
		},
		"a worker did not answer": func(t *testing.T, s *scene) {
			s.c.Break(func(call Call) Fault { return Fault{LoseRequest: call.Worker == "w0"} })
			s.quote(t, "blog") // a worker that does not answer counts as silent for any shape
			s.c.Break(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				change(t, s)
				s.isAsked(t)
			})
		})
	}
}

func (s *scene) quote(t *testing.T, app bourse.AppName) {
	o := order("gru")
	o.App.Name = app
	if _, err := s.x.Quote(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// TestOtherOrdersAreAskedAbout checks that the workers are asked if no similar order was placed
// before.
func TestOtherOrdersAreAskedAbout(t *testing.T) {
	for name, change := range map[string]func(*bourse.Order){
		"another app":         func(o *bourse.Order) { o.App.Name = "blog" },
		"another image":       func(o *bourse.Order) { o.Config.Image = "nginx" },
		"another size":        func(o *bourse.Order) { o.Config.Guest.MemoryMB++ },
		"another requirement": func(o *bourse.Order) { o.Config.Requirements = bourse.Requirements{"slots": {Count: 1}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			change(&s.order)
			s.isAsked(t)
		})
	}
}

// TestSpecialOrdersAreAskedAbout checks that, for orders whose quotes cannot be cached, the workers
// are asked every time.
func TestSpecialOrdersAreAskedAbout(t *testing.T) {
	for name, change := range map[string]func(*bourse.Order){
		"an ID chosen by the caller": func(o *bourse.Order) { o.HasChosenID = true },
		"a race":                     func(o *bourse.Order) { o.Race = 2 },
		"a lease":                    func(o *bourse.Order) { o.LeaseTTL = 5 },
		"without a start":            func(o *bourse.Order) { o.SkipLaunch = true },
		"a name":                     func(o *bourse.Order) { o.Name = "web" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			change(&s.order)
			s.isAsked(t)
			s.isAsked(t)
		})
	}
}

// directory is a Directory that changes the candidates that another directory returns.
type directory struct {
	market.Directory
	change func([]bourse.Member) []bourse.Member
}

func (d directory) Candidates(r bourse.Region) []bourse.Member {
	return d.change(d.Directory.Candidates(r))
}

// TestQuotesAreAlwaysAsked checks that Quote always asks the workers, and that its quotes are used
// for the next order.
func TestQuotesAreAlwaysAsked(t *testing.T) {
	c := floor(2, room(9))
	x := broker(c, standFor(time.Hour))
	for i := range 3 {
		if _, err := x.Quote(t.Context(), order("gru")); err != nil || c.Calls(Ask) != 2*(i+1) {
			t.Fatalf("%d asks after %d quotes: %v", c.Calls(Ask), i+1, err)
		}
	}
	if a := place(t.Context(), x, order("gru")); stood(&a.decision) == nil {
		t.Errorf("workers were asked although their quotes are cached: %+v", a.decision.Rounds)
	}
}

// TestDepartedWorkerIsNotClaimed checks that a worker that is no longer in the directory is not
// claimed, and that the quotes of the other workers stay cached.
func TestDepartedWorkerIsNotClaimed(t *testing.T) {
	c := floor(4, room(9))
	x := broker(c, standFor(time.Hour))
	place(t.Context(), x, order("gru"))
	c.Forget("w0")
	c.Forget("w2")
	for range 10 {
		a := place(t.Context(), x, order("gru"))
		if w := a.fill.Machine.Worker; a.err != nil || stood(&a.decision) == nil || (w != "w1" && w != "w3") {
			t.Fatalf("filled on %q: %v", w, a.err)
		}
	}
}

// TestFullWorkerCausesNoQuoteRequests checks that a full worker is not in the ranking, and that the
// other workers are claimed without requests for quotes.
func TestFullWorkerCausesNoQuoteRequests(t *testing.T) {
	c := floor(3, room(4))
	x, other := broker(c, standFor(time.Hour)), broker(c, nil)
	for range 5 { // one of the workers is full now
		if a := place(t.Context(), other, order("gru")); a.err != nil {
			t.Fatal(a.err)
		}
	}
	if _, err := x.Quote(t.Context(), order("gru")); err != nil {
		t.Fatal(err)
	}
	for range 7 {
		a := place(t.Context(), x, order("gru"))
		if a.err != nil || stood(&a.decision) == nil || len(a.decision.Rounds) != 1 {
			t.Fatalf("%v\n%+v", a.err, a.decision.Rounds)
		}
	}
	fails(t, place(t.Context(), x, order("gru")).err, bourse.CodeInsufficient)
}
