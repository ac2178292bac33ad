package lookup

import (
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// maxOwners bounds what is remembered; past it the memory starts again.
const maxOwners = 1 << 16

// Owner is what a record says of the app that it belongs to; see
// [bourse.App.Owns].
type Owner struct {
	App  bourse.AppName
	ID   string
	Made time.Time // the record
}

// OwnerOf returns what a machine says.
func OwnerOf(m *bourse.Machine) Owner { return Owner{m.App, m.AppID, m.CreatedAt} }

// OwnerOfVolume returns what a volume says.
func OwnerOfVolume(v *bourse.Volume) Owner { return Owner{v.App, v.AppID, v.CreatedAt} }

// owners remembers which app a machine is of, or a volume. That never changes,
// so what is remembered is never wrong, and forgetting costs one more question.
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
