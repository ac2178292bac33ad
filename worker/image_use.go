package worker

import (
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// imageUse knows which images may not be removed: those of machines that are
// not destroyed, and those that a machine is about to be recorded with.
type imageUse struct {
	mu   sync.Mutex
	held map[bourse.MachineID]string // guarded by mu; digests, until they are recorded
	used map[string]struct{}         // guarded by mu; digests that are recorded; nil: to be read
}

// changed has the records read again: a machine may have come or gone.
func (u *imageUse) changed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used = nil
}

// hold keeps an image for a machine until drop.
func (u *imageUse) hold(id bourse.MachineID, digest string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held == nil {
		u.held = map[bourse.MachineID]string{}
	}
	u.held[id] = digest
}

// drop ends a hold, once the machine is recorded with its image or never will
// be.
func (u *imageUse) drop(id bourse.MachineID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.held[id]; ok {
		delete(u.held, id)
		u.used = nil
	}
}

// has tells whether an image is in use. It holds the lock while it reads, so
// that no hold ends between.
func (u *imageUse) has(digest string, read func() (map[string]struct{}, error)) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, held := range u.held {
		if held == digest {
			return true
		}
	}
	if u.used == nil {
		used, err := read()
		if err != nil {
			return true // rather a full disk than a machine without its image
		}
		u.used = used
	}
	_, ok := u.used[digest]
	return ok
}

// imageInUse tells whether an image must stay.
func (w *Worker) imageInUse(digest string) bool {
	return w.images.has(digest, func() (map[string]struct{}, error) {
		used := map[string]struct{}{}
		err := w.store.View(func(tx *store.Tx) error {
			for m, err := range tx.Machines() {
				if err != nil {
					return err
				}
				if m.Image != nil && m.State != bourse.StateDestroyed {
					used[m.Image.Digest] = struct{}{}
				}
			}
			return nil
		})
		return used, err
	})
}
