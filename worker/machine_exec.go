package worker

import (
	"context"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
)

// runningOn returns a machine that must be started, and its driver.
func (w *Worker) runningOn(ctx context.Context, id bourse.MachineID) (bourse.Machine, driver.Driver, error) {
	m, err := w.machines.Running(ctx, id)
	if err != nil {
		return m, nil, err
	}
	d, err := w.machines.DriverOf(&m)
	return m, d, err
}

// execStream runs a command beside a task, its streams those of a caller.
func execStream(ctx context.Context, d driver.Driver, id driver.TaskID, streams fabric.ExecIO) (bourse.Exit, error) {
	exec := driver.Exec{Command: streams.Start.Command, Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr}
	var resizing sync.WaitGroup
	if t := streams.Start.Terminal; t != nil {
		over, cancel := context.WithCancel(ctx)
		defer resizing.Wait()
		defer cancel()
		sizes := make(chan driver.Size)
		resizing.Go(func() { passSizes(over, streams.Resize, sizes) })
		exec.Terminal = &driver.Terminal{Size: driver.Size(t.Size), Term: t.Term, Resize: sizes}
	}
	res, err := d.Exec(ctx, id, exec)
	return res.Exit, err
}

// passSizes passes sizes of a terminal on until ctx ends.
func passSizes(ctx context.Context, from <-chan fabric.Size, to chan<- driver.Size) {
	for {
		select {
		case <-ctx.Done():
			return
		case size := <-from:
			select {
			case <-ctx.Done():
				return
			case to <- driver.Size(size):
			}
		}
	}
}
