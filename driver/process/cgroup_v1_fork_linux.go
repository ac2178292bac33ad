package process

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// spares is how many groups are made ahead, so that a start does not wait for
// the making of directories.
const spares = 8

// forksAtOnce is how many threads enter groups at the same time: one forks,
// another one enters meanwhile. Forks themselves go one after the other in a
// Go program (syscall.ForkLock).
const forksAtOnce = 2

// refill keeps spare groups ready until close. One is made when one has been
// used: making and entering groups take the same lock in the kernel.
func (g *v1Groups) refill() {
	defer close(g.spare)
	for range spares {
		g.more()
	}
	for {
		select {
		case <-g.used:
		case <-g.closing:
			return
		}
		own, err := g.make()
		if err != nil {
			own = nil // whoever takes it tries again, and says why it fails
		}
		select {
		case g.spare <- own:
		case <-g.closing:
			if own != nil {
				_ = own.remove()
			}
			return
		}
	}
}

func (g *v1Groups) fork(in group, l driver.Limits, forkExec forkFunc) (int, group, error) {
	if own, ok := in.(*v1Group); ok && own.lent {
		return g.forkLent(own, l, forkExec)
	}
	if own, ok := in.(*v1Group); ok {
		pid, err := g.forkIn(own, forkExec)
		if err == nil {
			_ = own.join() // fails when the task has just ended, and the exec with it
		}
		return pid, own, err
	}
	own := g.take()
	if own == nil {
		var err error
		if own, err = g.make(); err != nil {
			return 0, nil, bourse.Errorf(bourse.CodeUnavailable, "no cgroup for the task: %w", err)
		}
	}
	own.trees = g.needed(l)
	pid, err := 0, own.bound(l)
	if err == nil {
		pid, err = g.forkIn(own, forkExec)
	}
	g.more()
	if err != nil {
		return 0, nil, errors.Join(err, own.remove())
	}
	return pid, own, nil
}

// take gives a spare group, nil when there is none.
func (g *v1Groups) take() *v1Group {
	select {
	case own := <-g.spare:
		return own
	default:
		return nil
	}
}

// more has a spare made for one that was used.
func (g *v1Groups) more() {
	select {
	case g.used <- struct{}{}:
	default: // as many as there can be are asked for already
	}
}

// forkIn forks from a thread that is in the group. A memory cgroup of v1 looks
// only at the leaders of thread groups when it has to kill, and at no child
// between vfork and exec: the supervisor is safe in a group that is out of
// memory as long as the thread is not its first.
func (g *v1Groups) forkIn(own *v1Group, forkExec forkFunc) (pid int, err error) {
	g.slots <- struct{}{}
	defer func() { <-g.slots }()
	runtime.LockOSThread()
	if syscall.Gettid() == os.Getpid() {
		// This goroutine keeps the first thread, so the other one gets another.
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			pid, err = forkHere(own, forkExec)
		}()
		<-done
		return pid, err
	}
	return forkHere(own, forkExec)
}

func errEntering(cause error) error {
	return bourse.Errorf(bourse.CodeUnavailable, "the task's cgroup cannot be entered: %w", cause)
}

// forkHere forks from the calling thread, which is locked, and unlocks it when
// it is back where it was. Else it stays locked and ends with its goroutine.
func forkHere(own *v1Group, forkExec forkFunc) (int, error) {
	pid, err := 0, own.enter()
	if err == nil {
		pid, err = forkExec(&syscall.SysProcAttr{})
	} else {
		err = errEntering(err)
	}
	if own.leave() == nil {
		runtime.UnlockOSThread()
	}
	return pid, err
}
