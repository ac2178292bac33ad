package serve

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// maxLine is the maximum length in bytes of a line that is assembled from pieces.
// Longer lines are split.
const maxLine = 1 << 20

// output prints a task's output, across the task's restarts.
type output struct {
	r    *runProgram
	stop context.CancelFunc
	done sync.WaitGroup

	// These fields do not need a lock, because finish waits for the goroutine in follow
	// before it uses them.
	last          time.Time // time of the latest line
	sameTimeLines int       // number of lines with that time that have been read
	pieces        map[string]*strings.Builder
}

// follow starts printing the task's output.
func (r *runProgram) follow(ctx context.Context) *output {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	o := &output{r: r, stop: stop, pieces: map[string]*strings.Builder{}}
	o.done.Go(func() {
		// Logs returns when stop is called, or when the driver has stopped and nothing is
		// left to read.
		_ = r.cfg.Runner.Logs(ctx, r.machine, driver.LogQuery{Follow: true}, o.line)
	})
	return o
}

// finish stops following the output, and prints the part that had not been read when the
// task ended.
func (o *output) finish() {
	o.stop()
	o.done.Wait()
	skip := o.sameTimeLines
	// Ignore the error: output that cannot be read now is lost.
	_ = o.r.cfg.Runner.Logs(context.Background(), o.r.machine, driver.LogQuery{Since: o.last}, func(l driver.LogLine) error {
		if skip > 0 && l.At.Equal(o.last) {
			skip--
			return nil
		}
		return o.line(l)
	})
}

func (o *output) line(l driver.LogLine) error {
	if !l.At.Equal(o.last) {
		o.last, o.sameTimeLines = l.At, 0
	}
	o.sameTimeLines++
	b := o.pieces[l.Stream]
	if b == nil {
		b = &strings.Builder{}
		o.pieces[l.Stream] = b
	}
	b.WriteString(l.Text)
	if l.Partial && b.Len() < maxLine {
		return nil
	}
	l.Text, l.Partial = b.String(), false
	b.Reset()
	o.r.printing.Lock()
	defer o.r.printing.Unlock()
	o.r.cfg.Print.Line(o.r.Name, l)
	return nil
}
