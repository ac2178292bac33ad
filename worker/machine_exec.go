package worker

import (
	"context"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/machines"
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

// processes returns the processes of a machine that runs. Codes: failed_precondition,
// not_found.
func (w *Worker) processes(ctx context.Context, id bourse.MachineID) ([]bourse.Process, error) {
	m, d, err := w.runningOn(ctx, id)
	if err != nil {
		return nil, err
	}
	if m.Config.ImageKind() == bourse.PollerImage {
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s runs where its poller is, whose processes are not seen", id)
	}
	status, err := d.Inspect(ctx, machines.TaskOf(&m))
	if err == nil && status.PID == 0 {
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "the program of machine %s has ended", id)
	}
	if err != nil {
		return nil, err
	}
	return machines.Table{Root: "/proc"}.Of(status.PID)
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
