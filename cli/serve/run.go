package serve

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Runner is the part of a driver that Run uses. The driver must have completed its
// recovery.
type Runner interface {
	Start(ctx context.Context, task driver.Task) (driver.Status, error)
	Wait(ctx context.Context, id driver.TaskID) (bourse.Exit, error)
	Stop(ctx context.Context, id driver.TaskID, signal bourse.Signal, timeout time.Duration) error
	DiscardExit(ctx context.Context, id driver.TaskID) error
	Logs(ctx context.Context, machine bourse.MachineID, want driver.LogQuery, line func(driver.LogLine) error) error
}

// Config configures Run.
type Config struct {
	Runner Runner
	Tasks  []Task
	Env    []string // environment of every task
	Dir    string   // working directory of every task
	Print  Print
}

// Print receives tasks' output and status messages. Its methods are never called
// concurrently.
type Print interface {
	Line(task string, l driver.LogLine) // l is always a whole line: Partial is never set
	Say(task, text string)
}

// Run runs all tasks until each has ended and will not be restarted. If ctx is done
// first, Run stops them. It returns the names of the failed tasks. A task fails if its
// last run could not be started or ended with an error. A task whose policy is "always"
// also fails if it was restarted too often. A task that is stopped because ctx is done
// does not fail. Errors come from the driver.
func Run(ctx context.Context, cfg Config) (failed []string, err error) {
	var all sync.WaitGroup
	var printing sync.Mutex
	ends := make([]taskEnd, len(cfg.Tasks))
	for i, t := range cfg.Tasks {
		r := &runProgram{cfg: &cfg, Task: t, printing: &printing, machine: machineOf(i)}
		all.Go(func() { ends[i] = r.run(ctx) })
	}
	all.Wait()
	for i, e := range ends {
		if e.err != nil {
			return failed, fmt.Errorf("task %s: %w", cfg.Tasks[i].Name, e.err)
		}
		if e.failed {
			failed = append(failed, cfg.Tasks[i].Name)
		}
	}
	return failed, nil
}

// machineOf returns a machine id for task i, because drivers require one.
func machineOf(i int) bourse.MachineID {
	return bourse.MachineID(fmt.Sprintf("%s%08x", bourse.WorkerTag(1), i))
}

// taskEnd is the final outcome of a task.
type taskEnd struct {
	failed bool
	err    error // error from the driver
}

// runProgram runs a task and restarts it according to its restart policy.
type runProgram struct {
	Task
	cfg      *Config
	machine  bourse.MachineID
	printing *sync.Mutex
}

func (r *runProgram) say(format string, args ...any) {
	r.printing.Lock()
	defer r.printing.Unlock()
	r.cfg.Print.Say(r.Name, fmt.Sprintf(format, args...))
}

// run runs the task, restarts it as needed, and returns its final outcome.
func (r *runProgram) run(ctx context.Context) taskEnd {
	out := r.follow(ctx)
	defer out.finish()
	policy := (&bourse.Config{Restart: &bourse.Restart{Policy: r.Restart}}).RestartPolicy()
	var restarts []time.Time
	for boot := 1; ; boot++ {
		exit, err := r.runOnce(ctx, driver.TaskID{Machine: r.machine, Boot: boot})
		if err != nil || ctx.Err() != nil {
			return taskEnd{err: err}
		}
		var again bool
		if again, restarts = policy.ShouldRestart(exit, restarts); !again {
			gaveUp := len(restarts) >= policy.MaxRetries && policy.Policy != bourse.RestartNo && (exit.Failed() || policy.Policy == bourse.RestartAlways)
			r.say("%s%s", describeExit(exit), map[bool]string{true: ", too often; not restarting it"}[gaveUp])
			return taskEnd{failed: exit.Failed() || gaveUp}
		}
		restarts = append(restarts, exit.At)
		pause := bourse.RestartBackoff(len(restarts))
		r.say("%s; restarting in %s", describeExit(exit), pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return taskEnd{}
		}
	}
}

// runOnce starts the task and waits until it ends. It stops the task once ctx is done.
func (r *runProgram) runOnce(ctx context.Context, id driver.TaskID) (bourse.Exit, error) {
	d := r.cfg.Runner
	_, err := d.Start(ctx, driver.Task{ID: id, Image: bourse.ImageHost, Command: r.Command, Env: r.cfg.Env, Dir: r.cfg.Dir})
	if code := bourse.CodeOf(err); code == bourse.CodeInvalid {
		return bourse.Exit{Code: -1, Error: bourse.MessageOf(err), At: time.Now()}, nil
	}
	var exit bourse.Exit
	if err == nil {
		exit, err = d.Wait(ctx, id)
	}
	after := context.WithoutCancel(ctx) // Stop has its own time limits
	if ctx.Err() != nil {               // the task may have started at the moment ctx was done
		err = d.Stop(after, id, "SIGTERM", bourse.DefaultStopTimeout)
		if bourse.CodeOf(err) == bourse.CodeNotFound {
			return exit, nil
		}
		if err == nil {
			exit, err = d.Wait(after, id)
		}
	}
	if err != nil {
		return exit, err
	}
	return exit, d.DiscardExit(after, id)
}

// describeExit describes how a task ended.
func describeExit(e bourse.Exit) string {
	switch {
	case e.Error != "":
		return e.Error
	case e.OOMKilled:
		return "ended: out of memory"
	case e.Signal != 0:
		return "ended by signal " + strconv.Itoa(e.Signal)
	}
	return "ended with exit code " + strconv.Itoa(e.Code)
}
