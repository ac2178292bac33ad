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

// Caller sends requests to other servers. A request's URL contains only a path and a query. fabric.Fabric
// implements Caller.
type Caller interface {
	Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error)
}

// Config configures a Replicator.
type Config struct {
	View    *view.View    // the view to replicate; required
	Cluster string        // default "bourse"; other clusters' messages are refused
	Self    bourse.Member // this server; required; its ID must be that of the view's site
	Release string        // release of this program, reported in the member's health
	Caller  Caller        // sends requests to other members; required
	// Certified reports whether Caller verifies the identities and roles of servers by their
	// certificates. If so, a snapshot of a stream is accepted only from the stream's site or a
	// broker, unless the stream is superseded.
	Certified bool
	Members   func() []bourse.Member // returns the current members, which may include Self; required
	Changed   func() <-chan struct{} // returns a channel that is closed at the next change of Members; default: poll every second
	Log       *slog.Logger           // default: discards all records
	Timing    Timing
	Limits    Limits
}

// Timing configures how often members send data to each other, and how long they wait. A zero field
// means the default.
type Timing struct {
	FullSends     int // number of times that each member sends a whole transaction; default 4; negative means never
	Announcements int // number of times that it then announces only the transaction's position; default 8; negative means never
	// PullDelay is how long to wait for a missing transaction to arrive as a rumor before it is
	// pulled; default 100 ms.
	PullDelay time.Duration
	// MinInterval and MaxInterval bound the time between comparisons with other members. When a comparison finds data
	// that this member was missing, the time is reset to MinInterval. After each comparison that does not, it grows, up
	// to MaxInterval. MaxInterval increases by 10 ms for each member of the group. The defaults are 300 ms and 2 s.
	MinInterval, MaxInterval time.Duration
	// MinAge is the age at which a missing transaction begins to count as a difference; default 1
	// s. Newer transactions may still arrive as rumors.
	MinAge time.Duration
	// Timeout is the time limit for each request; default 10 s. A snapshot may take ten times as
	// long.
	Timeout time.Duration
}

func (p Timing) withDefaults() Timing {
	p.FullSends, p.Announcements = max(0, cmp.Or(p.FullSends, 4)), max(0, cmp.Or(p.Announcements, 8))
	p.PullDelay = cmp.Or(p.PullDelay, 100*time.Millisecond)
	p.MinInterval = cmp.Or(p.MinInterval, 300*time.Millisecond)
	p.MaxInterval = cmp.Or(p.MaxInterval, 2*time.Second)
	p.MinAge = cmp.Or(p.MinAge, time.Second)
	p.Timeout = cmp.Or(p.Timeout, 10*time.Second)
	return p
}

// Limits bounds the work that a member accepts at the same time. A zero field means the default.
type Limits struct {
	// Maximum numbers of concurrent requests for each path. Further requests are answered with
	// status 429. The defaults are 16, 8, 16, 4 and 4.
	Digests, Pulls, Pushes, Snapshots, Healths int
	QueueBytes                                 int // maximum total size, in bytes, of transactions that wait to be sent whole; default 6000; other transactions are only announced
	QueueStreams                               int // maximum number of waiting announcements; default 4096
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
	c.Timing, c.Limits = c.Timing.withDefaults(), c.Limits.withDefaults()
	return c
}
