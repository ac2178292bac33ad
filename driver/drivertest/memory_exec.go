package drivertest

import (
	"context"
	"io"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Exec implements driver.Driver. It reads all of Stdin before it starts the program. It simulates
// only two properties of a terminal: its size, and that stdout and stderr are one stream.
func (d *MemoryDriver) Exec(ctx context.Context, id driver.TaskID, exec driver.Exec) (driver.ExecResult, error) {
	var result driver.ExecResult
	err := d.do(ctx, Call{Op: "Exec", ID: id}, func() error {
		if err := checkScript(exec.Command); err != nil {
			return err
		}
		if exec.Terminal != nil && exec.Stdout == nil {
			return bourse.Errorf(bourse.CodeInvalid, "a terminal requires stdout")
		}
		p := &program{rest: exec.Command}
		if exec.Stdin != nil {
			b, err := io.ReadAll(exec.Stdin)
			if err != nil {
				return err
			}
			p.stdin = string(b)
		}
		if exec.Terminal != nil {
			p.size = exec.Terminal.Size
		}
		var err error
		result, err = d.exec(ctx, id, p, newMemOutput(exec))
		return err
	})
	return result, err
}

func (d *MemoryDriver) exec(ctx context.Context, id driver.TaskID, p *program, out *memOutput) (driver.ExecResult, error) {
	m := d.host
	var result driver.ExecResult
	done := make(chan struct{})
	p.line = out.add
	m.mu.Lock()
	t := m.taskLocked(id)
	p.end = func(e bourse.Exit) {
		e.At = time.Now()
		result.Exit = e
		p.stop()
		delete(t.execs, p)
		close(done)
	}
	err := error(nil)
	switch {
	case m.current != d:
		err = errCut()
	case t == nil:
		err = errNoTask(id)
	case t.status.Exit != nil:
		err = errEnded(id)
	case t.frozen:
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "task %s/%d is frozen", id.Machine, id.Boot)
	}
	if err != nil {
		m.mu.Unlock()
		return result, err
	}
	p.task, t.execs[p] = t.task, true
	p.step(m.timerFor(t, p))
	m.mu.Unlock()
	err = d.stream(ctx, &memTask{done: done}, out)
	m.mu.Lock()
	defer m.mu.Unlock()
	p.stop()
	delete(t.execs, p)
	result.Stdout, result.Stderr = out.kept[0], out.kept[1]
	return result, err
}

// stream forwards a program's output until the program ends. It does not hold the host's mutex.
func (d *MemoryDriver) stream(ctx context.Context, t *memTask, out *memOutput) error {
	for {
		select {
		case <-out.more:
			out.flush(d.host)
			continue
		default:
		}
		select {
		case <-out.more:
			out.flush(d.host)
		case <-t.done:
			out.flush(d.host)
			return nil
		case <-d.cut:
			return errCut()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// memOutput is the output of an exec. The host's mutex guards pending and kept.
type memOutput struct {
	writers [2]io.Writer // nil: the output is stored in kept
	limit   int
	merged  bool // the program has a terminal, so both outputs are one stream
	kept    [2][]byte
	pending [2][]byte
	more    chan struct{} // receives a value when output is pending; has capacity 1
}

func newMemOutput(exec driver.Exec) *memOutput {
	out := &memOutput{limit: exec.Limit, merged: exec.Terminal != nil, more: make(chan struct{}, 1)}
	if out.limit == 0 {
		out.limit = 1 << 20
	}
	out.writers = [2]io.Writer{exec.Stdout, exec.Stderr}
	if exec.Stdout != nil && exec.Stderr == nil {
		out.writers[1] = io.Discard // if stdout is streamed, stderr is not stored either
	}
	return out
}

// add adds a line of the program's output. A partial line has no newline. The host's mutex must
// be held.
func (o *memOutput) add(stream, text string, partial bool) {
	if !partial {
		text += "\n"
	}
	i := 0
	if stream == "stderr" && !o.merged {
		i = 1
	}
	if o.writers[i] == nil {
		all := append(o.kept[i], text...)
		o.kept[i] = all[:min(len(all), o.limit)]
		return
	}
	o.pending[i] = append(o.pending[i], text...)
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// flush writes the pending output. Once a write has failed, flush no longer writes to that writer.
func (o *memOutput) flush(m *Memory) {
	m.mu.Lock()
	pending := o.pending
	o.pending = [2][]byte{}
	m.mu.Unlock()
	for i, b := range pending {
		if len(b) == 0 {
			continue
		}
		if _, err := o.writers[i].Write(b); err != nil {
			m.mu.Lock()
			o.writers[i] = io.Discard
			m.mu.Unlock()
		}
	}
}
