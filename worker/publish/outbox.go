package publish

import (
	"sync"

	"github.com/bourse-dev/bourse"
)

// maxNoted bounds the machines and volumes that an outbox names. Past it everything is
// published again, which costs about as much as so many changes.
const maxNoted = 4096

// outbox holds what has changed since it was published last: names only, so
// that many changes of one machine are one, and a view that fails costs
// nothing but them. Adding never blocks.
type outbox struct {
	wake chan struct{} // holds a token when there is something to take

	mu   sync.Mutex // never held over anything else
	held changes
}

// changes is what an outbox holds.
type changes struct {
	ids     map[bourse.MachineID]struct{}
	volumes map[bourse.VolumeID]struct{}
	all     bool            // everything; then ids and volumes are empty
	unsure  bool            // some of the changes may not have happened yet
	waits   []chan struct{} // closed when all this has been published
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// add notes that a machine has changed. unsure says that the change is on its
// way into the store and perhaps not there yet.
func (o *outbox) add(id bourse.MachineID, unsure bool) {
	o.update(func(p *changes) {
		p.unsure = p.unsure || unsure
		p.add(id)
	})
}

// addVolume is add for a volume.
func (o *outbox) addVolume(id bourse.VolumeID, unsure bool) {
	o.update(func(p *changes) {
		p.unsure = p.unsure || unsure
		p.addVolume(id)
	})
}

// addAll notes that anything may have changed.
func (o *outbox) addAll() { o.update((*changes).addAll) }

// await returns a channel that is closed when all that was added before it has
// been published.
func (o *outbox) await() <-chan struct{} {
	done := make(chan struct{})
	o.update(func(p *changes) { p.waits = append(p.waits, done) })
	return done
}

// put returns what could not be published.
func (o *outbox) put(back changes) {
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

// take empties the outbox.
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
	default: // one token is enough: the reader takes all there is
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
