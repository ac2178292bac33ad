package drivertest

import (
	"context"
	"io"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Exec implements driver.Driver.
func (d *MemoryDriver) Exec(ctx context.Context, id driver.TaskID, exec driver.Exec) (driver.ExecResult, error) {
	var result driver.ExecResult
	err := d.do(ctx, Call{Op: "Exec", ID: id}, func() error {
		if err := checkScript(exec.Command); err != nil {
			return err
		}
		p := &program{rest: exec.Command}
		if exec.Stdin != nil {
			b, err := io.ReadAll(exec.Stdin)
			if err != nil {
				return err
			}
			p.stdin = string(b)
		}
		var err error
		result, err = d.exec(ctx, id, p, exec.Limit)
		return err
	})
	return result, err
}

func (d *MemoryDriver) exec(ctx context.Context, id driver.TaskID, p *program, limit int) (driver.ExecResult, error) {
	if limit == 0 {
		limit = 1 << 20
	}
	m := d.host
	var result driver.ExecResult
	done := make(chan struct{})
	out := map[string]*[]byte{"stdout": &result.Stdout, "stderr": &result.Stderr}
	p.line = func(stream, text string) {
		all := append(*out[stream], text+"\n"...)
		*out[stream] = all[:min(len(all), limit)]
	}
	m.mu.Lock()
	t := m.taskLocked(id)
	p.end = func(e bourse.Exit) {
		e.At = time.Now()
		result.Exit = e
		p.stop()
		delete(t.execs, p)
		close(done)
	}
	switch {
	case m.current != d:
		m.mu.Unlock()
		return result, errCut()
	case t == nil:
		m.mu.Unlock()
		return result, errNoTask(id)
	case t.status.Exit != nil:
		m.mu.Unlock()
		return result, bourse.Errorf(bourse.CodeFailedPrecondition, "task %s/%d has ended", id.Machine, id.Boot)
	}
	p.task, t.execs[p] = t.task, true
	p.step(m.again(p))
	m.mu.Unlock()
	err := d.await(ctx, &memTask{done: done})
	m.mu.Lock()
	defer m.mu.Unlock()
	p.stop()
	delete(t.execs, p)
	return result, err
}
