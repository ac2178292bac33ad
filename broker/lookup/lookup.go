// Package lookup finds apps, machines and volumes for a broker. It combines the view, workers' recent replies to this
// broker, and answers to queries that it sends to workers. The view is only a hint (invariant 8); gather.go and
// volumes_gather.go determine when workers are queried as well. [Checker] checks quotas against the results.
package lookup

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Directory lists the members of the cluster. It is a hint, as current as the latest gossip.
type Directory interface {
	// Workers returns all known workers. The caller may modify the slice.
	Workers() []bourse.Member
	// ByTag returns the worker with the given tag, the prefix of its machines' IDs.
	ByTag(tag bourse.WorkerTag) (bourse.Member, bool)
	// Regions returns all regions that have workers, sorted.
	Regions() []bourse.Region
	// All returns the present workers (the same as Workers) as here, and the absent workers as away. Both lists
	// come from the same snapshot. The caller must not modify them.
	All() (here []bourse.Member, away []bourse.Absence)
	// Knows reports whether All is complete. Once it has returned true, it never returns false again. Until then, a
	// worker or object that is not found may exist nevertheless.
	Knows() bool
}

// Sources contains the sources of a broker's information about the cluster.
type Sources struct {
	View      View
	Directory Directory
	Workers   fabric.Fabric
	Timeout   time.Duration // time limit for asking several workers in parallel
	Now       func() time.Time
	Log       *slog.Logger
}

func (s *Sources) viewFailed(ctx context.Context, err error) {
	s.Log.WarnContext(ctx, "read view failed", slog.Any("err", err))
}

// recorded reports whether the view contains an app with this name.
func (s *Sources) recorded(ctx context.Context, name bourse.AppName) bool {
	app, err := s.View.App(ctx, name)
	return app != nil && err == nil
}

// owns reports whether a worker owns the objects whose IDs contain the given tag. If the tag's owner is unknown, it
// returns true. It is used to ignore data that one member publishes about another member's objects.
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

// NewMachines creates a Machines with empty caches.
func NewMachines(s Sources) *Machines {
	return &Machines{s, newOwners[bourse.MachineID](), newReplyCache(s.Now)}
}

// Owner returns the cached app of a machine. It returns false if the app is not cached.
func (k *Machines) Owner(id bourse.MachineID) (Owner, bool) { return k.owners.of(id) }

// Remember caches the app of a machine, which never changes.
func (k *Machines) Remember(m *bourse.Machine) { k.owners.remember(m.ID, OwnerOf(m)) }

// RememberReply caches a reply from the machine's worker about the machine.
func (k *Machines) RememberReply(m *bourse.Machine) { k.fresh.note(m) }

// Replied returns the app's machines whose latest versions this broker knows from workers' replies, but not from the
// view yet.
func (k *Machines) Replied(app bourse.AppName) map[bourse.MachineID]bourse.Machine {
	return k.fresh.of(app)
}

// Volumes finds volumes.
type Volumes struct {
	Sources
	owners *owners[bourse.VolumeID]
	fresh  *freshVolumes
}

// NewVolumes creates a Volumes with empty caches.
func NewVolumes(s Sources) *Volumes {
	return &Volumes{s, newOwners[bourse.VolumeID](), newFreshVolumes(s.Now)}
}

// Owner returns the cached app of a volume. It returns false if the app is not cached.
func (k *Volumes) Owner(id bourse.VolumeID) (Owner, bool) { return k.owners.of(id) }

// Remember caches the app of a volume, which never changes.
func (k *Volumes) Remember(v *bourse.Volume) { k.owners.remember(v.ID, OwnerOfVolume(v)) }

// RememberReply caches a reply from the volume's worker about the volume.
func (k *Volumes) RememberReply(v *bourse.Volume) {
	if v.ID == "" {
		return
	}
	k.Remember(v)
	k.fresh.note(v)
}

// UnresponsiveText returns a phrase that lists the workers that did not answer.
func UnresponsiveText(ids []bourse.WorkerID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	return "no answer from worker " + strings.Join(names, ", ")
}
