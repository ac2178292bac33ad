package query

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse/view"
)

// Source is the view as the engine needs it.
type Source interface {
	// Path returns the SQLite file, "" when there is none to be opened.
	Path() string
	// Watch returns a channel that has an element when one of the tables, by
	// their names on the wire, has changed since the last receive, and what
	// ends that.
	Watch(tables ...string) (changed <-chan struct{}, stop func())
}

// Of makes a view a Source.
func Of(v *view.View) Source { return viewSource{v} }

type viewSource struct{ *view.View }

func (s viewSource) Watch(tables ...string) (<-chan struct{}, func()) {
	w := s.View.Watch(tables...)
	return w.C, w.Stop
}

// Config is what an engine is made of.
type Config struct {
	Source Source           // required
	Now    func() time.Time // default time.Now
	Log    *slog.Logger     // default: discards

	Limits        Limits
	Subscriptions SubscriptionLimits
}

// Limits bounds the statements. Zero fields take their defaults.
type Limits struct {
	Time       time.Duration // of one statement, sending its rows included; default 5 s
	Rows       int           // of one result; default 100 000
	Bytes      int           // of one result, as sent; default 64 MiB
	Memory     int64         // that SQLite may take for one statement, in bytes; default 128 MiB
	Statements int           // that run at once; default 4
}

// SubscriptionLimits bounds the subscriptions. Zero fields take their defaults.
type SubscriptionLimits struct {
	Number  int           // at once; default 32
	Readers int           // of all of them; default 256
	Rows    int           // of one result; default 10 000
	Bytes   int           // of one result; default 8 MiB
	History int           // bytes of changes kept for those who resume, for each; default 4 MiB
	Time    time.Duration // of one run of the statement; default 1 s
	Runs    int           // at once; default 2
	Pause   time.Duration // between two runs of one statement, at least; default 50 ms
	Linger  time.Duration // how long one without readers goes on; default 1 minute
	Stall   time.Duration // how long a reader may take for a batch of lines; default 15 s
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Limits = Limits{
		Time:       cmp.Or(c.Limits.Time, 5*time.Second),
		Rows:       cmp.Or(c.Limits.Rows, 100_000),
		Bytes:      cmp.Or(c.Limits.Bytes, 64<<20),
		Memory:     cmp.Or(c.Limits.Memory, 128<<20),
		Statements: cmp.Or(c.Limits.Statements, 4),
	}
	s := c.Subscriptions
	c.Subscriptions = SubscriptionLimits{
		Number:  cmp.Or(s.Number, 32),
		Readers: cmp.Or(s.Readers, 256),
		Rows:    cmp.Or(s.Rows, 10_000),
		Bytes:   cmp.Or(s.Bytes, 8<<20),
		History: cmp.Or(s.History, 4<<20),
		Time:    cmp.Or(s.Time, time.Second),
		Runs:    cmp.Or(s.Runs, 2),
		Pause:   cmp.Or(s.Pause, 50*time.Millisecond),
		Linger:  cmp.Or(s.Linger, time.Minute),
		Stall:   cmp.Or(s.Stall, 15*time.Second),
	}
	return c
}
