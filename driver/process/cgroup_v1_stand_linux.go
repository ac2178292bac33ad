package process

import (
	"os"
	"runtime"
	"syscall"
)

// standers is how many threads stand in a new group before anybody asks. To
// enter a group the kernel waits until all its processors have passed a quiet
// moment, 10 to 20 ms on an idle host, unless somebody has just entered one.
// Who starts a single machine does not wait for that; many at once enter
// groups for themselves, which is cheap then.
const standers = 2

// v1Job is a fork from a thread that stands ready.
type v1Job struct {
	forkExec forkFunc
	done     chan v1Born // has room for one
}

type v1Born struct {
	pid int
	own *v1Group
	err error
}

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
		case job := <-g.ready:
			pid, err := job.forkExec(&syscall.SysProcAttr{})
			if err != nil {
				job.done <- v1Born{err: err}
				continue // nobody is in the group but us
			}
			job.done <- v1Born{pid: pid, own: own}
			own = nil
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
	own.trees = g.trees[:1]
	if err := own.enter(); err != nil {
		_ = own.leave()
		_ = own.remove()
		return nil
	}
	return own
}

// forkReady forks from a thread that stands ready; false when there is none
// now.
func (g *v1Groups) forkReady(trees []hierarchy, forkExec forkFunc) (v1Born, bool) {
	for _, h := range trees[1:] {
		if !h.late() {
			return v1Born{}, false
		}
	}
	job := v1Job{forkExec: forkExec, done: make(chan v1Born, 1)}
	select {
	case g.ready <- job:
	default:
		return v1Born{}, false
	}
	born := <-job.done
	if born.err == nil {
		born.own.trees = trees
	}
	return born, true
}
