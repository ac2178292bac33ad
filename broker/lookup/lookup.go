// Package lookup finds apps, machines and volumes for a broker: in the view, in what
// their owners replied through this broker in the last seconds, and at the workers
// themselves. The view is a hint (invariant 8); gather.go and volumes_gather.go decide
// when workers are asked as well. Quotas are checked against what is found ([Checker]).
package lookup

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Directory knows the members of the cluster: a hint, as old as the last gossip.
type Directory interface {
	// Workers returns every worker heard of. The slice is the caller's.
	Workers() []bourse.Member
	// ByTag finds the owner of the machines whose ids begin with the tag.
	ByTag(tag bourse.WorkerTag) (bourse.Member, bool)
	// Regions returns every region that has a worker, sorted.
	Regions() []bourse.Region
	// All returns Workers, and the workers that belong to the cluster and are no
	// members, of one moment. The slices are shared.
	All() (here []bourse.Member, away []bourse.Absence)
	// Knows reports whether All are all workers of the cluster. Once it is true it
	// stays so. Before that, no "no" is one.
	Knows() bool
}

// Sources is where a broker looks.
type Sources struct {
	View      View
	Directory Directory
	Workers   fabric.Fabric
	Patience  time.Duration // for workers asked side by side
	Now       func() time.Time
	Log       *slog.Logger
}

func (s *Sources) viewFailed(ctx context.Context, err error) {
	s.Log.WarnContext(ctx, "read view failed", slog.Any("err", err))
}

// recorded reports whether the view knows an app of the name.
func (s *Sources) recorded(ctx context.Context, name bourse.AppName) bool {
	app, err := s.View.App(ctx, name)
	return app != nil && err == nil
}

// owns reports whether a worker owns what has a tag, as far as that is known: a
// member must not speak for what is another's.
func (s *Sources) owns(worker bourse.WorkerID, tag bourse.WorkerTag) bool {
	owner, ok := s.Directory.ByTag(tag)
	return !ok || owner.ID == worker
}

// Machines finds machines.
type Machines struct {
	Sources
	owners *owners[bourse.MachineID]
	fresh  *freshMachines
}

// NewMachines makes a Machines that remembers nothing.
func NewMachines(s Sources) *Machines {
	return &Machines{s, newOwners[bourse.MachineID](), newFresh(s.Now)}
}

// Owner returns the app of a machine, if it is remembered.
func (k *Machines) Owner(id bourse.MachineID) (Owner, bool) { return k.owners.of(id) }

// Remember notes the app of a machine, which never changes.
func (k *Machines) Remember(m *bourse.Machine) { k.owners.remember(m.ID, OwnerOf(m)) }

// Note takes in a machine as its owner replied it.
func (k *Machines) Note(m *bourse.Machine) { k.fresh.note(m) }

// Replied returns what owners replied lately of an app's machines and the view
// does not have.
func (k *Machines) Replied(app bourse.AppName) map[bourse.MachineID]bourse.Machine {
	return k.fresh.of(app)
}

// Volumes finds volumes.
type Volumes struct {
	Sources
	owners *owners[bourse.VolumeID]
	fresh  *freshVolumes
}

// NewVolumes makes a Volumes that remembers nothing.
func NewVolumes(s Sources) *Volumes {
	return &Volumes{s, newOwners[bourse.VolumeID](), newFreshVolumes(s.Now)}
}

// Owner returns the app of a volume, if it is remembered.
func (k *Volumes) Owner(id bourse.VolumeID) (Owner, bool) { return k.owners.of(id) }

// Remember notes the app of a volume, which never changes.
func (k *Volumes) Remember(v *bourse.Volume) { k.owners.remember(v.ID, OwnerOfVolume(v)) }

// Note takes in a volume as its owner replied it.
func (k *Volumes) Note(v *bourse.Volume) {
	if v.ID == "" {
		return
	}
	k.Remember(v)
	k.fresh.note(v)
}

// DoNotAnswer says which workers are silent.
func DoNotAnswer(ids []bourse.WorkerID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	return "no answer from worker " + strings.Join(names, ", ")
}
