package process

import (
	"os"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/driver/logs"
)

// output copies a task's stdout and stderr to the log.
type output struct {
	opened chan struct{} // closed once pipes are set
	pipes  [2]*os.File
	wg     sync.WaitGroup
}

// newOutput starts copying from two pipes and takes ownership of them. It does all work in other
// goroutines, to avoid delaying the task's start.
func newOutput(stdout, stderr int, log *logs.Log) *output {
	o := &output{opened: make(chan struct{})}
	o.wg.Go(func() {
		o.pipes = [2]*os.File{os.NewFile(uintptr(stdout), "stdout"), os.NewFile(uintptr(stderr), "stderr")}
		close(o.opened)
		for i, p := range o.pipes {
			s := &logs.Stream{Name: p.Name(), Pipe: o.pipes[i], Log: log}
			o.wg.Go(s.Copy)
		}
	})
	return o
}

// finish waits until both streams have ended. If another process still holds a stream open after
// the grace period, finish copies the data that is available at that time, and returns.
func (o *output) finish(grace time.Duration) {
	done := make(chan struct{})
	go func() { o.wg.Wait(); close(done) }()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	<-o.opened
	for _, p := range o.pipes {
		_ = p.SetReadDeadline(time.Now())
	}
	<-done
}
