package replication

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
)

// Caller carries a request to one server; the request's URL has a path and a
// query only. fabric.Fabric is one.
type Caller interface {
	Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error)
}

// Config is what a Replicator is made of.
type Config struct {
	View    *view.View    // required
	Cluster string        // default "bourse"; others' messages are refused
	Self    bourse.Member // required: its ID is the view's site
	Release string        // of this program; part of its health
	Caller  Caller        // required
	// Certified says that Caller verifies by certificates which server answers,
	// and in which role. Then a member is believed only what it may say: see speaksFor.
	Certified bool
	Members   func() []bourse.Member // required; ourselves may be among them
	Changed   func() <-chan struct{} // closed at the next change of Members; default: it is looked at each second
	Log       *slog.Logger           // default: none
	Pace      Pace
	Limits    Limits
}

// Pace says how often and how fast members send to one another. The zero value
// means the defaults.
type Pace struct {
	Whole    int // how often each member passes a transaction on; default 4, below 0: never
	Announce int // and then its position alone; default 8, below 0: never
	// Grace is how long a gap or an announced transaction may take to come by
	// itself before it is pulled; default 100 ms.
	Grace time.Duration
	// Fast and Slow bound the time between comparisons with another member:
	// Fast after one that found differences, Slow in quiet times. Slow grows
	// by 10 ms with each member of the group. Default 300 ms and 2 s.
	Fast, Slow time.Duration
	// Settle is how old what is missing must be to count as a difference;
	// default 1 s: younger news is still on its way.
	Settle time.Duration
	// Timeout bounds each exchange; default 10 s. A snapshot may take ten
	// times as long.
	Timeout time.Duration
}

func (p Pace) withDefaults() Pace {
	p.Whole, p.Announce = max(0, cmp.Or(p.Whole, 4)), max(0, cmp.Or(p.Announce, 8))
	p.Grace = cmp.Or(p.Grace, 100*time.Millisecond)
	p.Fast = cmp.Or(p.Fast, 300*time.Millisecond)
	p.Slow = cmp.Or(p.Slow, 2*time.Second)
	p.Settle = cmp.Or(p.Settle, time.Second)
	p.Timeout = cmp.Or(p.Timeout, 10*time.Second)
	return p
}

// Limits bound what a member takes on at a time. The zero value means the
// defaults.
type Limits struct {
	// Requests that are served at once; others get 429. Defaults: 16, 8, 16,
	// 4 and 4.
	Digests, Pulls, Pushes, Snapshots, Healths int
	QueueBytes                                 int // of rumours that wait; default 6000; what is pushed out is announced
	QueueStreams                               int // of announcements that wait; default 4096
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Digests:      cmp.Or(l.Digests, 16),
		Pulls:        cmp.Or(l.Pulls, 8),
		Pushes:       cmp.Or(l.Pushes, 16),
		Snapshots:    cmp.Or(l.Snapshots, 4),
		Healths:      cmp.Or(l.Healths, 4),
		QueueBytes:   cmp.Or(l.QueueBytes, 6000),
		QueueStreams: cmp.Or(l.QueueStreams, 4096),
	}
}

func (c Config) withDefaults() Config {
	c.Cluster = cmp.Or(c.Cluster, "bourse")
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Changed == nil {
		c.Changed = func() <-chan struct{} { return nil }
	}
	c.Pace, c.Limits = c.Pace.withDefaults(), c.Limits.withDefaults()
	return c
}
