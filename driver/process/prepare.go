package process

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// prepared is a task that the supervisor was asked to load.
type prepared struct {
	sp     *spec
	link   *link
	turn   chan struct{} // holds one while nobody uses it: guards what follows
	answer <-chan *reply
	used   bool        // it was let go, or dropped
	expire *time.Timer // not guarded
}

// preparations are the tasks that are loaded, or being loaded.
type preparations struct {
	mu    sync.Mutex
	tasks map[driver.TaskID]*prepared
}

// Bounds of loaded tasks.
const (
	maxPrepared = maxLoaded
	prepareTime = 5 * time.Second // how long one waits for its start
)

var _ driver.Preparer = (*Driver)(nil)

// Prepare implements driver.Preparer: the supervisor loads the task's program,
// and Start only has it go.
func (d *Driver) Prepare(task driver.Task) {
	d.mu.Lock()
	l, minor := d.link, d.minor
	d.mu.Unlock()
	if l == nil || minor < minorLoading || !d.prepared.room(task.ID) {
		return
	}
	if _, _, known := d.mirror.get(task.ID); known {
		return
	}
	sp, err := specOf(task)
	if err != nil || sp.apart() || len(sp.Stdin) > 0 {
		return
	}
	p := &prepared{sp: sp, link: l, turn: make(chan struct{}, 1)}
	p.expire = time.AfterFunc(prepareTime, func() { d.expire(p) })
	if !d.prepared.add(p) {
		p.expire.Stop()
		return
	}
	if p.answer, err = l.send(&request{Op: opPrepare, Start: sp}, func(r *reply) { d.answered(p, r) }); err != nil {
		p.used = true
		d.prepared.remove(p)
	}
	p.turn <- struct{}{}
}

// answered makes room for others when a task was not loaded.
func (d *Driver) answered(p *prepared, r *reply) {
	if r.Error != nil {
		d.prepared.remove(p)
	}
}

// expire drops a loaded task that nobody has started.
func (d *Driver) expire(p *prepared) {
	select {
	case <-p.turn:
	default:
		return // it is being started
	}
	d.prepared.remove(p)
	if !p.used {
		p.used = true
		_ = p.link.write(&request{Op: opDrop, Task: p.sp.ID}) // when it fails the supervisor drops it
	}
	p.turn <- struct{}{}
}

// startPrepared starts a task that was loaded; done is false when it has to be
// started from the beginning. The supervisor is not waited for: it knows of
// the task before it reads anything else that we write.
func (d *Driver) startPrepared(ctx context.Context, p *prepared, sp *spec) (_ driver.Status, done bool, _ error) {
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
	case <-ctx.Done():
		return driver.Status{}, true, ctx.Err()
	}
	if status, _, ok := d.mirror.get(sp.ID); ok { // by another call
		return status, true, nil
	}
	if l, err := d.current(); err != nil || p.used || l != p.link || !p.sp.equal(sp) {
		return driver.Status{}, false, nil
	}
	p.used = true
	defer d.prepared.remove(p) // until then another call waits for its turn
	var r *reply
	select {
	case r = <-p.answer:
	case <-ctx.Done():
		_ = p.link.write(&request{Op: opDrop, Task: sp.ID})
		return driver.Status{}, true, ctx.Err()
	}
	if r == nil || r.Error != nil || r.Status == nil {
		return driver.Status{}, false, nil // Start says why, if it fails
	}
	status := driver.Status{ID: sp.ID, PID: r.Status.PID, StartedAt: time.Now().UTC().Round(0)}
	d.mirror.put(status) // before its end can be told
	if err := p.link.write(&request{Op: opGo, Task: sp.ID, At: status.StartedAt}); err != nil {
		d.mirror.forget(sp.ID)
		return driver.Status{}, true, errLinkEnded(err)
	}
	return status, true, nil
}

// room tells whether a further task may be loaded.
func (ps *preparations) room(id driver.TaskID) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.tasks) < maxPrepared && ps.tasks[id] == nil
}

// add enters a task; false when there is no room, or it is there.
func (ps *preparations) add(p *prepared) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.tasks == nil {
		ps.tasks = map[driver.TaskID]*prepared{}
	}
	if len(ps.tasks) >= maxPrepared || ps.tasks[p.sp.ID] != nil {
		return false
	}
	ps.tasks[p.sp.ID] = p
	return true
}

// get gives the task that was prepared by an id, nil for none.
func (ps *preparations) get(id driver.TaskID) *prepared {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.tasks[id]
}

func (ps *preparations) remove(p *prepared) {
	p.expire.Stop()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.tasks[p.sp.ID] == p {
		delete(ps.tasks, p.sp.ID)
	}
}

// forget removes what was prepared of a machine, or with "" of all.
func (ps *preparations) forget(machine bourse.MachineID) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for id, p := range ps.tasks {
		if machine == "" || id.Machine == machine {
			p.expire.Stop()
			delete(ps.tasks, id)
		}
	}
}

// equal tells whether two tasks that nothing sets apart are the same.
func (s *spec) equal(o *spec) bool {
	same := func(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
	return s.ID == o.ID && same(s.Command, o.Command) && same(s.Env, o.Env) && bytes.Equal(s.Dir, o.Dir) &&
		s.User.equal(o.User) && s.Limits == o.Limits && !o.apart() && len(o.Stdin) == 0
}

func (u *identity) equal(o *identity) bool {
	if u == nil || o == nil {
		return u == o
	}
	return u.Name == o.Name && u.UID == o.UID && u.GID == o.GID && slices.Equal(u.Groups, o.Groups)
}
