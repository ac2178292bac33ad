package query

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse/view"
)

// Source provides an Engine with the view's file and notifies it of changes. [Of] returns a Source for a view.
type Source interface {
	// Path returns the path of the SQLite file, or "" if there is none.
	Path() string
	// Watch returns a channel that receives a value after one of the tables has changed, and a function that ends the
	// notifications. Several changes before the value is read count as one. Tables are named as on the wire. If tables
	// is empty, all tables are watched.
	Watch(tables ...string) (changed <-chan struct{}, stop func())
}

// Of returns a Source for a view.
func Of(v *view.View) Source { return viewSource{v} }

type viewSource struct{ *view.View }

func (s viewSource) Watch(tables ...string) (<-chan struct{}, func()) {
	w := s.View.Watch(tables...)
	return w.C, w.Stop
}

// Config configures an Engine.
type Config struct {
	Source Source           // the view to query; required
	Now    func() time.Time // default time.Now
	Log    *slog.Logger     // default: discards all records

	Limits        Limits
	Subscriptions SubscriptionLimits
}

// Limits contains the limits for statements. A zero field means the default.
type Limits struct {
	Time       time.Duration // time limit for a statement, including the time for sending its rows; default 5 s
	Rows       int           // rows in a result; default 100 000
	Bytes      int           // bytes in a result, as sent; default 64 MiB
	Memory     int64         // bytes that SQLite may allocate for a statement; default 128 MiB
	Statements int           // statements that run at the same time; default 4
}

// SubscriptionLimits contains the limits for subscriptions. A zero field means the default.
type SubscriptionLimits struct {
	Max          int           // number of concurrent subscriptions; default 32
	Readers      int           // total number of readers of all subscriptions; default 256
	Rows         int           // rows in a result; default 10 000
	Bytes        int           // bytes in a result; default 8 MiB
	History      int           // bytes of changes retained for resuming, for each subscription; default 4 MiB
	Time         time.Duration // time limit for one run of the statement; default 1 s
	Runs         int           // number of subscription statements that run at the same time; default 2
	Pause        time.Duration // minimum pause between two runs of a statement; default 50 ms
	IdleTime     time.Duration // how long a subscription without readers continues; default 1 minute
	WriteTimeout time.Duration // time limit for a reader to accept a batch of lines; default 15 s
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
		Max:          cmp.Or(s.Max, 32),
		Readers:      cmp.Or(s.Readers, 256),
		Rows:         cmp.Or(s.Rows, 10_000),
		Bytes:        cmp.Or(s.Bytes, 8<<20),
		History:      cmp.Or(s.History, 4<<20),
		Time:         cmp.Or(s.Time, time.Second),
		Runs:         cmp.Or(s.Runs, 2),
		Pause:        cmp.Or(s.Pause, 50*time.Millisecond),
		IdleTime:     cmp.Or(s.IdleTime, time.Minute),
		WriteTimeout: cmp.Or(s.WriteTimeout, 15*time.Second),
	}
	return c
}
