package broker

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// Exchange decides orders.
type Exchange interface {
	// Place fills the order or says why nobody would. The decision is told
	// also with an error; one with CodeInsufficient is a refusal.
	Place(ctx context.Context, order bourse.Order) (bourse.Fill, bourse.Decision, error)
	// Quote goes through the motions of Place up to the claim.
	Quote(ctx context.Context, order bourse.Order) (bourse.Decision, error)
	// Reserve fills all orders, which are for capacity and of one reservation,
	// or none. The decision is that of the order that was not filled.
	Reserve(ctx context.Context, orders []bourse.Order) ([]bourse.Hold, bourse.Decision, error)
	// Decisions finds what this exchange decided lately: the order of this id,
	// and those of any app whose callers chose it.
	Decisions(id bourse.OrderID) []bourse.Decision
}

// Directory knows the members of the cluster: a hint, as old as the last
// gossip.
type Directory interface {
	// Workers gives every worker heard of. The slice is the caller's.
	Workers() []bourse.Member
	// Worker finds one by its id.
	Worker(id bourse.WorkerID) (bourse.Member, bool)
	// ByTag finds the owner of the machines whose ids begin with the tag.
	ByTag(tag bourse.WorkerTag) (bourse.Member, bool)
	// Regions gives every region that has a worker, sorted.
	Regions() []bourse.Region
	// Absent returns the workers that belong to the cluster and are not among
	// Workers now. The slice is shared.
	Absent() []bourse.Absence
	// Knows reports whether Workers and Absent together are all workers of the
	// cluster. Once it is true it stays so. Before that, no "no" is one.
	Knows() bool
}

// Workers is what a broker asks of workers, each part beside its use. An error
// with CodeUnavailable means that the worker has not seen the request.
type Workers interface {
	MachineKeeper
	VolumeKeeper
	ImageKeeper
	AppKeeper
	OrderReader
	Holder
	Operator
}

// MachineKeeper is what a broker asks of workers about machines.
type MachineKeeper interface {
	MachineReader
	MachineActor
	MachineHelper
	MachineWaiter
	MachineStreamer
}

var _ Workers = (*fabric.Client)(nil)

// Config is what a broker is made of.
type Config struct {
	Exchange  Exchange
	Directory Directory
	Workers   Workers
	View      View             // nil: everything is asked of the workers
	Queries   Queries          // nil: the view cannot be queried here
	Tokens    Tokens           // nil: no credentials are asked for, which only loopback allows
	Log       *slog.Logger     // default: nothing is logged
	Region    bourse.Region    // where this broker stands; shown in request ids
	Version   string           // shown by the health call
	Now       func() time.Time // default time.Now
	Patience  time.Duration    // for workers asked side by side and for reads; default 2 s

	Orders throttle.TurnsConfig // orders in progress
	Quotas Quotas
}

// Broker serves the public API. Make one with [New].
type Broker struct {
	Config

	turns   *throttle.Turns
	rates   throttle.Rates
	usages  usages
	apps    *appStore
	owners  *owners[bourse.MachineID]
	fresh   *freshMachines
	volumes knownVolumes
	handler http.Handler
}

// New makes a broker. It starts nothing.
func New(config Config) *Broker {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Patience = cmp.Or(config.Patience, 2*time.Second)
	config.Region = cmp.Or(config.Region, "local")
	if config.View == nil {
		config.View = noView{config.Workers, config.Directory.Workers, config.Patience}
	}
	b := &Broker{Config: config, owners: newOwners[bourse.MachineID](), fresh: newFresh(config.Now)}
	b.turns = throttle.NewTurns(config.Orders)
	b.volumes = knownVolumes{newOwners[bourse.VolumeID](), newFreshVolumes(config.Now)}
	b.apps = newAppStore(&b.Config)
	b.handler = b.routed()
	return b
}

// Handler serves /v1.
func (b *Broker) Handler() http.Handler { return b.handler }
