// Package driver is the contract between a worker and what runs its machines:
// host processes, containers, VMs. A driver's tasks outlive the daemon; the
// driver is asked after a restart what is alive, and says how what ended did.
//
// Every driver passes the suite in driver/drivertest.
package driver

import (
	"context"
	"io"
	"time"

	"github.com/bourse-dev/bourse"
)

// TaskID names one run of one machine's program. The boot number makes Start
// idempotent: a repeated start of the same boot finds the first one's result.
type TaskID struct {
	Machine bourse.MachineID `json:"machine"`
	Boot    int              `json:"boot"` // 1 or more, growing
}

// Task is a program to run.
type Task struct {
	ID      TaskID   `json:"id"`
	Image   string   `json:"image"`
	Command []string `json:"command"`        // at least the program; looked up in PATH when it has no slash
	Env     []string `json:"env,omitempty"`  // "NAME=value", the whole environment
	Dir     string   `json:"dir,omitempty"`  // working directory; default the machine's own
	User    string   `json:"user,omitempty"` // "user[:group]", names or numbers; default the daemon's own
	Limits  Limits   `json:"limits"`
}

// Limits are what a task may use. 0 means no limit. What a host cannot
// enforce is left out of the driver's labels, and nothing is pretended.
type Limits struct {
	CPUWeight bourse.MilliCPU `json:"cpu_weight,omitempty"` // share under contention
	CPUQuota  bourse.MilliCPU `json:"cpu_quota,omitempty"`  // hard ceiling
	Memory    bourse.MiB      `json:"memory,omitempty"`
	PIDs      int             `json:"pids,omitempty"`
}

// Status is what a driver knows of a task.
type Status struct {
	ID        TaskID       `json:"id"`
	PID       int          `json:"pid,omitempty"`  // 0 once it has ended
	StartedAt time.Time    `json:"started_at"`     // stable: the same in every answer
	Exit      *bourse.Exit `json:"exit,omitempty"` // set once it has ended
}

// Driver runs tasks. All methods are safe for concurrent use and give up when
// ctx ends. Errors carry a bourse code:
//
//	not_found            no such task
//	invalid              the command does not exist, is not executable, no such user or directory
//	failed_precondition  the task has ended (Signal, Exec), or a newer boot exists or an older one still runs (Start)
//	unavailable          the driver's own machinery is gone; try again
type Driver interface {
	Lifecycle
	// Signal sends a signal to the task's main process.
	Signal(ctx context.Context, id TaskID, signal bourse.Signal) error
	// Exec runs a command beside the task, in its environment, directory and
	// limits, until it ends or ctx does (then its whole process group is
	// killed). A command that does not exist is CodeInvalid.
	Exec(ctx context.Context, id TaskID, exec Exec) (ExecResult, error)
	// Logs gives the machine's log lines, of all its boots, oldest first.
	// With Follow it goes on until ctx ends or the machine is destroyed.
	Logs(ctx context.Context, machine bourse.MachineID, want LogQuery, line func(LogLine) error) error
	// Labels are the facts of this driver on this host, for orders that
	// require them: "limit.memory": "cgroup", "rlimit" or absent.
	Labels() map[string]string
}

// Lifecycle is the part of a driver that the worker's state machines use.
type Lifecycle interface {
	// Recover is called once, before anything else, after the daemon has
	// started: it finds (or starts) the machinery and gives every task it
	// holds, running or ended and not yet destroyed.
	Recover(ctx context.Context) ([]Status, error)
	// Start runs a task. It is idempotent by task id: a second Start gives
	// the first's status, also when the task has ended meanwhile. A program
	// that cannot be started is CodeInvalid and leaves nothing behind.
	Start(ctx context.Context, task Task) (Status, error)
	// Inspect gives the status of a task.
	Inspect(ctx context.Context, id TaskID) (Status, error)
	// Wait blocks until the task has ended and its output has been written to
	// its log. A task whose fate nobody knows any more has an Exit with Code
	// -1 and an Error.
	Wait(ctx context.Context, id TaskID) (bourse.Exit, error)
	// Stop sends signal to the task's process group, SIGKILL to all that is
	// left of it after timeout, and returns when nothing of it lives. A task
	// that has ended is no error.
	Stop(ctx context.Context, id TaskID, signal bourse.Signal, timeout time.Duration) error
	// Forget drops what is kept of an ended task's exit, once the worker has
	// recorded it. Unknown tasks are no error.
	Forget(ctx context.Context, id TaskID) error
	// Destroy kills whatever of the machine still runs and removes all that
	// the driver keeps of it: files, logs, limits. It is idempotent.
	Destroy(ctx context.Context, machine bourse.MachineID) error
}

// Exec is a command to run beside a task.
type Exec struct {
	Command []string
	Stdin   io.Reader // nil: empty
	Limit   int       // bytes kept of each output; 0 means 1 MiB
}

// ExecResult is how an Exec ended.
type ExecResult struct {
	Exit   bourse.Exit
	Stdout []byte
	Stderr []byte
}

// LogQuery says which lines are wanted.
type LogQuery struct {
	Since  time.Time // zero: from the beginning
	Tail   int       // the last so many; 0: all, negative: none (with Follow: only new ones)
	Follow bool
}

// LogLine is one line of a machine's output, without its newline. A line that
// was longer than the log keeps in one piece comes as several, all but the
// last marked Partial.
type LogLine struct {
	At      time.Time `json:"at"`
	Stream  string    `json:"stream"` // "stdout" or "stderr"
	Text    string    `json:"text"`
	Partial bool      `json:"partial,omitempty"`
}
