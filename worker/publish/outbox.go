package publish

import (
	"sync"

	"github.com/bourse-dev/bourse"
)

// maxNoted is the maximum number of machines, and of volumes, that an outbox remembers.
// If more of them change, all records are published again, which costs about the same.
const maxNoted = 4096

// outbox contains the ids of records that have changed since they were last published. If a machine changes several
// times, it is therefore published only once. Even if publishing fails for a long time, only ids take up memory. Adding
// to an outbox never blocks.
type outbox struct {
	wake chan struct{} // contains a token if the outbox may contain changes

	mu   sync.Mutex // never held while other code is called
	held changes
}

// changes contains the ids of changed records, and the callers that are waiting until these records are published.
type changes struct {
	ids     map[bourse.MachineID]struct{}
	volumes map[bourse.VolumeID]struct{}
	all     bool            // whether all records may have changed; if set, ids and volumes are empty
	unsure  bool            // whether some of the changes may not be durable yet
	waits   []chan struct{} // closed once all changes have been published
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// add notes that a machine has changed. unsure is true if the change was submitted to the store but may not be
// durable yet.
func (o *outbox) add(id bourse.MachineID, unsure bool) {
	o.update(func(p *changes) {
		p.unsure = p.unsure || unsure
		p.add(id)
	})
}

// addVolume is like add, for a volume.
func (o *outbox) addVolume(id bourse.VolumeID, unsure bool) {
	o.update(func(p *changes) {
		p.unsure = p.unsure || unsure
		p.addVolume(id)
	})
}

// addAll notes that all records may have changed.
func (o *outbox) addAll() { o.update((*changes).addAll) }

// await returns a channel that is closed once all changes that the outbox contains now have been published.
func (o *outbox) await() <-chan struct{} {
	done := make(chan struct{})
	o.update(func(p *changes) { p.waits = append(p.waits, done) })
	return done
}

// putBack puts changes back into the outbox after an attempt to publish them has failed.
func (o *outbox) putBack(back changes) {
	o.update(func(p *changes) {
		p.unsure = p.unsure || back.unsure
		p.waits = append(p.waits, back.waits...)
		if back.all {
			p.addAll()
		}
		for id := range back.ids {
			p.add(id)
		}
		for id := range back.volumes {
			p.addVolume(id)
		}
	})
}

// take removes and returns the content of the outbox.
func (o *outbox) take() changes {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.held
	o.held = changes{}
	return p
}

func (o *outbox) update(change func(*changes)) {
	o.mu.Lock()
	change(&o.held)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default: // one token is enough, because the reader takes all changes
	}
}

func (p *changes) add(id bourse.MachineID) {
	if p.all {
		return
	}
	if p.ids == nil {
		p.ids = map[bourse.MachineID]struct{}{}
	}
	if p.ids[id] = struct{}{}; len(p.ids) > maxNoted {
		p.addAll()
	}
}

func (p *changes) addVolume(id bourse.VolumeID) {
	if p.all {
		return
	}
	if p.volumes == nil {
		p.volumes = map[bourse.VolumeID]struct{}{}
	}
	if p.volumes[id] = struct{}{}; len(p.volumes) > maxNoted {
		p.addAll()
	}
}

func (p *changes) addAll() { p.all, p.ids, p.volumes = true, nil, nil }
