package worker

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/publish"
)

var errView = bourse.Errorf(bourse.CodeUnavailable, "the view fails")

// memView is a view in memory that outlives the daemons that use it. Tests can make it
// fail.
type memView struct {
	changed chan struct{}

	mu       sync.Mutex
	fault    viewFault
	machines map[bourse.MachineID]bourse.Machine
	volumes  map[bourse.VolumeID]bourse.Volume
	images   map[string]bourse.Image // images by digest
	apps     map[bourse.AppName]bourse.App
	canceled []bourse.OrderID
	facts    *bourse.Facts
	leaving  bool
	lost     chan struct{}
	refused  func(*bourse.Machine) bool // reports whether the view cannot store a machine; nil if it can store all
	count    viewCount
}

// viewFault is called twice for each call to a memView: before the call takes effect, and afterwards. If it returns an
// error afterwards, the worker does not learn that the call took effect.
type viewFault func(ctx context.Context, call string, after bool) error

// viewCount counts the updates that a memView has received.
type viewCount struct{ updates, facts, machines, gone, largest int }

func newMemView() *memView {
	return &memView{
		changed: make(chan struct{}, 1), lost: make(chan struct{}),
		machines: map[bourse.MachineID]bourse.Machine{}, volumes: map[bourse.VolumeID]bourse.Volume{}, apps: map[bourse.AppName]bourse.App{},
		images: map[string]bourse.Image{},
	}
}

func (v *memView) call(ctx context.Context, name string, fn func() error) error {
	v.mu.Lock()
	fault := v.fault
	v.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, name, false); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	v.mu.Lock()
	err := fn()
	v.mu.Unlock()
	if err == nil && fault != nil {
		err = fault(ctx, name, true)
	}
	return err
}

func (v *memView) Publish(ctx context.Context, u publish.Update) error {
	return v.call(ctx, "Publish", func() error {
		if v.refused != nil && slices.ContainsFunc(u.Machines, func(m bourse.Machine) bool { return v.refused(&m) }) {
			return bourse.Errorf(bourse.CodeInvalid, "a row is too large")
		}
		c := &v.count
		c.updates++
		c.machines, c.gone = c.machines+len(u.Machines), c.gone+len(u.Gone)
		c.largest = max(c.largest, len(u.Machines)+len(u.Gone))
		if u.Facts != nil {
			c.facts++
			v.facts, v.leaving = u.Facts, u.Leaving
		}
		for _, m := range u.Machines {
			v.machines[m.ID] = m
		}
		for _, id := range u.Gone {
			delete(v.machines, id)
		}
		for _, x := range u.Volumes {
			v.volumes[x.ID] = x
		}
		for _, id := range u.GoneVolumes {
			delete(v.volumes, id)
		}
		for _, x := range u.Images {
			v.images[x.Ref.Digest] = x
		}
		for _, digest := range u.GoneImages {
			delete(v.images, digest)
		}
		for _, app := range u.Apps {
			if !bytes.Equal(app.Proof, proven(app).Proof) {
				return bourse.Errorf(bourse.CodeInvalid, "app %s has no proof", app.Name)
			}
			v.put(app)
		}
		return nil
	})
}

func (v *memView) fail(fault viewFault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fault = fault
}

func (v *memView) put(app bourse.App) {
	app.Proof = nil
	if old, ok := v.apps[app.Name]; ok {
		app = old.Merge(app)
	}
	v.apps[app.Name] = app
	v.poke()
}

func (v *memView) poke() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

func (v *memView) Machines(ctx context.Context) (out []bourse.MachineID, err error) {
	return out, v.call(ctx, "Machines", func() error { out = slices.Collect(maps.Keys(v.machines)); return nil })
}

func (v *memView) Volumes(ctx context.Context) (out []bourse.VolumeID, err error) {
	return out, v.call(ctx, "Volumes", func() error { out = slices.Collect(maps.Keys(v.volumes)); return nil })
}

func (v *memView) Images(ctx context.Context) (out []string, err error) {
	return out, v.call(ctx, "Images", func() error { out = slices.Collect(maps.Keys(v.images)); return nil })
}

func (v *memView) Apps(ctx context.Context) (out []bourse.App, err error) {
	return out, v.call(ctx, "Apps", func() error { out = slices.Collect(maps.Values(v.apps)); return nil })
}

// proven returns the app with a proof, as a broker would sign it.
func proven(app bourse.App) bourse.App {
	app.Proof = []byte("proof of " + app.ID)
	return app
}

func (v *memView) Proof(ctx context.Context, name bourse.AppName) (app bourse.App, err error) {
	return app, v.call(ctx, "Prove", func() error {
		app = proven(v.apps[name])
		return nil
	})
}

func (v *memView) Canceled(ctx context.Context) (out []bourse.OrderID, err error) {
	return out, v.call(ctx, "Canceled", func() error { out = slices.Clone(v.canceled); return nil })
}

func (v *memView) Changed() <-chan struct{} { return v.changed }

func (v *memView) RowsLost() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lost
}

// lose discards everything that the worker has published, and the apps.
func (v *memView) lose() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.machines)
	clear(v.volumes)
	clear(v.images)
	clear(v.apps)
	v.facts = nil
	close(v.lost)
	v.lost = make(chan struct{})
}

// cancel adds cancellations to the view, as if they came from a broker.
func (v *memView) cancel(orders ...bourse.OrderID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.canceled = append(v.canceled, orders...)
	v.poke()
}

// tell adds apps to the view.
func (v *memView) tell(apps ...bourse.App) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, app := range apps {
		v.put(app)
	}
}

// has calls look with the view locked.
func (v *memView) has(look func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	look()
}

func (v *memView) counted() viewCount {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.count
}

var _ publish.View = (*memView)(nil)
