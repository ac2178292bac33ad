package lookup

import (
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// maxOwners is the maximum size of the cache. A full cache is cleared.
const maxOwners = 1 << 16

// Owner identifies the app that a record belongs to; see [bourse.App.Owns].
type Owner struct {
	App  bourse.AppName
	ID   string
	Made time.Time // creation time of the record
}

// OwnerOf returns the owner of a machine.
func OwnerOf(m *bourse.Machine) Owner { return Owner{m.App, m.AppID, m.CreatedAt} }

// OwnerOfVolume returns the owner of a volume.
func OwnerOfVolume(v *bourse.Volume) Owner { return Owner{v.App, v.AppID, v.CreatedAt} }

// owners caches the apps of machines or volumes. An object's app never changes, so cached entries never become stale.
type owners[K ~string] struct {
	mu   sync.Mutex
	byID map[K]Owner
}

func newOwners[K ~string]() *owners[K] { return &owners[K]{byID: map[K]Owner{}} }

func (o *owners[K]) of(id K) (Owner, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of, ok := o.byID[id]
	return of, ok
}

func (o *owners[K]) remember(id K, of Owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.byID) >= maxOwners {
		clear(o.byID)
	}
	o.byID[id] = of
}
