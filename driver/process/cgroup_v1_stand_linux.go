package process

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"github.com/bourse-dev/bourse/driver"
)

// standers is how many threads stand in a new group before anybody asks. To
// enter a group the kernel waits until all its processors have passed a quiet
// moment, 10 to 20 ms on an idle host, unless somebody has just entered one.
// Who starts a single machine does not wait for that; many at once enter
// groups for themselves, which is cheap then.
const standers = 2

// stand runs a thread that stands ready, until close. It is never the first
// one of the process: see forkIn.
func (g *v1Groups) stand() {
	runtime.LockOSThread()
	if syscall.Gettid() != os.Getpid() {
		g.standHere()
		return
	}
	another := make(chan struct{}) // a thread, while we keep this one
	go func() {
		runtime.LockOSThread()
		close(another)
		g.standHere()
	}()
	<-another
	runtime.UnlockOSThread()
}

// standHere does the work on the calling thread, which is locked and ends with
// its goroutine.
func (g *v1Groups) standHere() {
	defer g.standing.Done()
	var own *v1Group
	for {
		if own == nil {
			if own = g.enterNew(); own == nil {
				return // forks enter groups for themselves, and say why they cannot
			}
		}
		select {
		case work := <-g.ready:
			work(own)
			if !own.lent { // a task is born in it
				own = nil
				pause(respite, g.closing)
			}
		case <-g.closing:
			_ = own.leave()
			_ = own.remove()
			return
		}
	}
}

// enterNew takes or makes a group and moves the calling thread into the part
// that all tasks need; nil when that fails, or at the end.
func (g *v1Groups) enterNew() *v1Group {
	own := g.take()
	g.more()
	if own == nil {
		var err error
		if own, err = g.make(); err != nil {
			return nil
		}
	}
	own.trees, own.lent = g.trees[:1], true
	if err := own.enter(); err != nil {
		_ = own.leave()
		_ = own.remove()
		return nil
	}
	return own
}

// lend hands work to a thread that stands ready: between a request and its
// answer no other thread has to be waited for.
func (g *v1Groups) lend(work func(here group)) bool {
	select {
	case g.ready <- func(own *v1Group) { work(own) }:
		return true
	default:
		return false
	}
}

func (*v1Groups) stands() bool { return true }

// forkLent forks from the calling thread, which stands in own: it only has to
// enter what few tasks need, and goes back from there.
func (g *v1Groups) forkLent(own *v1Group, l driver.Limits, forkExec forkFunc) (int, group, error) {
	own.trees = g.needed(l)
	extra := &v1Group{all: g, name: own.name, trees: own.trees[1:]}
	pid, err := 0, errors.Join(own.bound(l), extra.enter())
	if err == nil {
		pid, err = forkExec(&syscall.SysProcAttr{})
	} else {
		err = errEntering(err)
	}
	_ = extra.leave() // what fails here fails in the next task's enter, too
	if err != nil {
		own.trees = g.trees[:1]
		return 0, nil, err
	}
	own.lent = false
	return pid, own, nil
}
