package serve

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// maxLine is how much of a line is put together from its pieces; what is longer
// becomes several.
const maxLine = 1 << 20

// output passes on what a task writes, in all its boots.
type output struct {
	r    *runProgram
	stop context.CancelFunc
	done sync.WaitGroup

	// Where the reader is, for the one that goes on after it: used by one goroutine at a time.
	last   time.Time // of the latest line
	same   int       // lines with that time
	pieces map[string]*strings.Builder
}

// follow passes on what the task writes from now on.
func (r *runProgram) follow(ctx context.Context) *output {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	o := &output{r: r, stop: stop, pieces: map[string]*strings.Builder{}}
	o.done.Go(func() {
		// It ends with stop, or with the driver: then there is nothing to read.
		_ = r.cfg.Runner.Logs(ctx, r.machine, driver.LogQuery{Follow: true}, o.line)
	})
	return o
}

// finish passes on what the follower had not read yet when the task ended.
func (o *output) finish() {
	o.stop()
	o.done.Wait()
	skip := o.same
	// What can no longer be read is lost.
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
		o.last, o.same = l.At, 0
	}
	o.same++
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
